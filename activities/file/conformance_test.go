package file_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/file"
)

func TestMain(m *testing.M) { os.Exit(actiontest.Main(m, cases()...)) }

func TestConformance(t *testing.T) {
	for _, c := range cases() {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { actiontest.Run(t, c) })
	}
}

type params = map[string]any

func cases() []actiontest.Case {
	return []actiontest.Case{
		writeCase("replace a file",
			func(root string) any {
				return params{"path": root + "/conf/app.json", "content": "key = correct \"horse\" battery\n"}
			},
			func(root string) any { return params{"path": root + "/conf/app.json", "content": `{}`, "mode": "0600"} },
			func(c *actiontest.Case) {
				c.Secret = `correct "horse" battery`
				c.Checks = []activities.Check{
					{When: activities.Staged, Command: &activities.CommandCheck{Run: []string{"test", "-s", "{path}"}}},
					{When: activities.Live, Exists: &activities.ExistsCheck{}},
				}
			}),
		writeCase("create a file",
			func(root string) any { return params{"path": root + "/conf/new", "content": "new\n", "mode": "0640"} },
			func(root string) any { return params{"path": root + "/conf/new", "content": "newer\n"} }, func(c *actiontest.Case) {
				c.Drift, c.Meanwhile = grow("conf/new"), grow("conf/new")
			}),
		writeCase("create a file in new folders",
			func(root string) any { return params{"path": root + "/a/b/c/new", "content": "new\n"} },
			func(root string) any {
				return params{"path": root + "/a/b/other",
					"content": "newer\n"}
			}, func(c *actiontest.Case) {
				c.Drift, c.Meanwhile = grow("a/b/c/new"), makeFolder("a")
			}),
		writeCase("several files",
			func(root string) any {
				return params{"files": []params{
					{"path": root + "/link", "content": "{}"}, {"path": root + "/conf/new", "content": ""},
					{"path": root + "/a/b/one", "content": "1"}, {"path": root + "/a/two", "source": root + "/conf/private"},
				}}
			},
			func(root string) any {
				return params{"files": []params{{"path": root + "/conf/app.json", "content": "{\n}"},
					{"path": root + "/a/b/one", "content": "2"}}}
			}, func(c *actiontest.Case) {
				c.Meanwhile = replace("conf/app.json")
			}),
		deleteCase("delete a file", "conf/app.json"),
		deleteCase("delete a folder", "tree"),
	}
}

func writeCase(name string, with, next func(root string) any, more func(*actiontest.Case)) actiontest.Case {
	c := actiontest.Case{
		Name: name, Action: "file.write", Start: furnish, Open: openRoot, Manifest: manifest,
		With:      func(dir string) any { return with(rootOf(dir)) },
		Next:      func(dir string) any { return next(rootOf(dir)) },
		Drift:     grow("conf/app.json"),
		Meanwhile: grow("conf/app.json"),
		Sample:    3,
	}
	if more != nil {
		more(&c)
	}
	return c
}

func deleteCase(name, path string) actiontest.Case {
	return actiontest.Case{
		Name: name, Action: "file.delete", Start: furnish, Open: openRoot, Manifest: manifest,
		With: func(dir string) any { return params{"path": rootOf(dir) + "/" + path} },
		Next: func(dir string) any {
			return params{"paths": []string{rootOf(dir) + "/" + path, rootOf(dir) + "/conf/private"}}
		},
		Drift:     grow(path),
		Meanwhile: replace(path),
		Sample:    3,
	}
}

func rootOf(dir string) string { return filepath.Join(dir, "root") }

func openRoot(dir string) (activities.World, error) {
	return file.New(file.Config{Roots: []string{rootOf(dir)}})
}

// furnish makes a root with all kinds of things in it, all of them old.
func furnish(t testing.TB, dir string) {
	root := rootOf(dir)
	for _, folder := range []string{"conf", "tree/sub/deep", "tree/empty"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for path, mode := range map[string]fs.FileMode{
		"conf/app.json": 0o640, "conf/private": 0o600, "tree/one": 0o444, "tree/sub/two": 0o755, "tree/sub/deep/three": 0o604,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte("the old content of "+path+"\n"), 0o600))
		require.NoError(t, os.Chmod(filepath.Join(root, path), mode))
		require.NoError(t, unix.Setxattr(filepath.Join(root, path), "user.test", []byte("of "+path), 0))
	}
	require.NoError(t, os.Symlink("conf/app.json", filepath.Join(root, "link")))
	require.NoError(t, os.Symlink("../conf", filepath.Join(root, "tree/inside")))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(root, "tree/dangling")))
	require.NoError(t, os.Link(filepath.Join(root, "tree/one"), filepath.Join(root, "tree/hard")))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "tree/pipe"), 0o620))
	require.NoError(t, os.Chmod(filepath.Join(root, "tree/empty"), 0o700|fs.ModeSticky))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(filepath.Join(root, "conf/app.json"), 1234, 4321))
		require.NoError(t, os.Lchown(filepath.Join(root, "tree/dangling"), 1234, 4321))
		require.NoError(t, os.Chmod(filepath.Join(root, "conf/app.json"), 0o640))
	}
	age(t, root)
}

// age gives everything below root times of its own in the past, to the nanosecond.
func age(t testing.TB, root string) {
	n := int64(0)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		n++
		stamp := unix.NsecToTimespec(time.Date(2020, 1, 2, 3, 4, 5, 6789, time.UTC).UnixNano() + n*1_000_000_007)
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// grow makes something at a path longer, or makes it.
func grow(path string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		at := filepath.Join(rootOf(dir), path)
		if info, err := os.Lstat(at); err == nil && info.IsDir() {
			at = filepath.Join(at, "more")
		}
		f, err := os.OpenFile(at, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		_, err = f.WriteString("by someone else\n")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

func makeFolder(path string) func(testing.TB, string) {
	return func(t testing.TB, dir string) { require.NoError(t, os.Mkdir(filepath.Join(rootOf(dir), path), 0o755)) }
}

// replace puts another file in place of whatever is at a path.
func replace(path string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		require.NoError(t, os.RemoveAll(filepath.Join(rootOf(dir), path)))
		grow(path)(t, dir)
	}
}

// manifest describes a root to the last nanosecond, but for the store.
func manifest(t testing.TB, dir string) string { return describe(t, rootOf(dir)) }

func describe(t testing.TB, root string) string {
	var lines []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".unwind" {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d links=%d time=%d.%09d", strings.TrimPrefix(path, root), st.Mode, st.Uid, st.Gid,
			st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
		switch {
		case d.Type().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(raw), sha256.Sum256(raw))
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		lines = append(lines, line+xattrs(path))
		return nil
	}))
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func xattrs(path string) string {
	buf, value := make([]byte, 4096), make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		return ""
	}
	var all []string
	for _, name := range strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }) {
		n, _ := unix.Lgetxattr(path, name, value)
		all = append(all, fmt.Sprintf(" %s=%q", name, value[:max(n, 0)]))
	}
	sort.Strings(all)
	return strings.Join(all, "")
}
