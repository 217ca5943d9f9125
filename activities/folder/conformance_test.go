package folder_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	containertest.Main(m, restoreCase, gitCase, checkpointCase, containerCase, volumeCase, remakeCase, forwardCase)
}

func TestRestoreConforms(t *testing.T) { actiontest.Run(t, restoreCase) }

func TestRestoreOfARepositoryConforms(t *testing.T) {
	testrun.NeedProgram(t, "git", "install it")
	actiontest.Run(t, gitCase)
}

func TestCheckpointConforms(t *testing.T) { actiontest.Run(t, checkpointCase) }

type params = map[string]any

func treeOf(dir string) string { return filepath.Join(dir, "root", "tree") }

func open(dir string) (activities.World, error) {
	return folder.New(folder.Config{State: filepath.Join(dir, "state"), Roots: []string{filepath.Join(dir, "root")}})
}

var restoreCase = actiontest.Case{
	Name: "restore", Action: "folder.restore", Open: open, Manifest: manifest, Anew: true,
	Start: func(t testing.TB, dir string) {
		furnish(t, dir)
		keep(t, dir, "one")
		sh(t, dir, "echo two >b; echo two >d/new; mkdir -p m/n; touch m/n/o; touch -h -d @1500000000.5 . d b d/new")
		keep(t, dir, "two")
		sh(t, dir, `rm -r gone d/sub; echo changed >b; mkdir -p added/in; echo x >added/in/x; chmod 700 d; ln -sfn nowhere link
			rm hard; touch -h -d @1600000000.25 . d b link added added/in added/in/x`)
	},
	With:      func(dir string) any { return params{"path": treeOf(dir), "checkpoint": nameOf("one")} },
	Next:      func(dir string) any { return params{"path": treeOf(dir), "checkpoint": nameOf("two")} },
	Checks:    []activities.Check{{Exists: &activities.ExistsCheck{Path: "b"}}},
	Drift:     func(t testing.TB, dir string) { sh(t, dir, "echo drift >>gone/a; echo drift >>gone/more") },
	Meanwhile: func(t testing.TB, dir string) { sh(t, dir, "echo meanwhile >>b") },
	Sample:    2,
}

// gitCase is brief: what may break a restore, the other case tests.
var gitCase = actiontest.Case{
	Name: "restore of a repository", Action: "folder.restore", Open: open, Manifest: manifest, Anew: true, Brief: true,
	Start: func(t testing.TB, dir string) {
		require.NoError(t, os.MkdirAll(treeOf(dir), 0o755))
		sh(t, dir, makeRepository)
		keepWith(t, dir, "one", params{"path": treeOf(dir), "git": true})
		sh(t, dir, "git commit -qam more; echo later >later")
		keepWith(t, dir, "two", params{"path": treeOf(dir), "git": true})
		sh(t, dir, wreck)
	},
	With:      func(dir string) any { return params{"path": treeOf(dir), "checkpoint": nameOf("one")} },
	Next:      func(dir string) any { return params{"path": treeOf(dir), "checkpoint": nameOf("two")} },
	Drift:     func(t testing.TB, dir string) { sh(t, dir, "echo drift >>a") },
	Meanwhile: func(t testing.TB, dir string) { sh(t, dir, "echo meanwhile >>a") },
	Sample:    1,
}

var checkpointCase = actiontest.Case{
	Name: "checkpoint", Action: "folder.checkpoint", Open: open, Anew: true, Lapses: true,
	Start:  furnish,
	With:   func(dir string) any { return params{"path": treeOf(dir)} },
	Next:   func(dir string) any { return params{"path": filepath.Join(treeOf(dir), "d")} },
	Checks: []activities.Check{{Exists: &activities.ExistsCheck{Path: "b"}}},
	Manifest: func(t testing.TB, dir string) string {
		kept, err := filepath.Glob(filepath.Join(dir, "state", "store", "trees", "*"))
		require.NoError(t, err)
		chunks, err := filepath.Glob(filepath.Join(dir, "state", "store", "chunks", "*", "*"))
		require.NoError(t, err)
		return fmt.Sprintf("%s\n%d trees of %d chunks", manifest(t, dir), len(kept), len(chunks))
	},
}

// furnish makes a folder with all kinds of things in it.
func furnish(t testing.TB, dir string) {
	require.NoError(t, os.MkdirAll(treeOf(dir), 0o755))
	sh(t, dir, `mkdir -p d/sub gone empty; echo one >b; echo in >d/b; echo a >gone/a; echo s >d/sub/s; ln -s b link; ln b hard; mkfifo pipe
		chmod 750 d; chmod 640 b; truncate -s 3M sparse; echo end >>sparse; find . -exec touch -h -d @1400000000.123456789 {} +`)
	require.NoError(t, unix.Setxattr(filepath.Join(treeOf(dir), "d"), "user.note", []byte("kept"), 0))
}

func sh(t testing.TB, dir, script string) {
	c := exec.Command("sh", "-ec", script)
	c.Dir = treeOf(dir)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func token(name string) string { return activities.NewToken("start", name, 0) }

func nameOf(name string) string { return "cp-" + token(name) }

// keep makes a checkpoint.
func keep(t testing.TB, dir, name string) { keepWith(t, dir, name, params{"path": treeOf(dir)}) }

func keepWith(t testing.TB, dir, name string, p params) {
	w, err := open(dir)
	require.NoError(t, err)
	mark, err := w.Journal(context.Background())
	require.NoError(t, err)
	with, err := json.Marshal(p)
	require.NoError(t, err)
	e := activities.Entry{Token: token(name), Action: "folder.checkpoint", Params: with,
		Place: activities.Place{Journal: mark}}
	r, err := w.Actions[0].Apply(context.Background(), e, activities.Step{ID: name, With: with}, "")
	require.NoError(t, err)
	require.Equal(t, nameOf(name), r.Outputs["checkpoint"])
}

// manifest describes the folder and what is beside it, to the last nanosecond.
func manifest(t testing.TB, dir string) string {
	var lines []string
	root := filepath.Join(dir, "root")
	require.NoError(t, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || at == root {
			return err
		}
		if err := unix.Lstat(at, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d links=%d %d.%09d", strings.TrimPrefix(at, root), st.Mode, st.Uid, st.Gid, st.Nlink,
			st.Mtim.Sec, st.Mtim.Nsec)
		switch {
		case d.Type().IsRegular():
			raw, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(raw), sha256.Sum256(raw))
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		note := make([]byte, 100)
		if n, err := unix.Lgetxattr(at, "user.note", note); err == nil {
			line += " note=" + string(note[:n])
		}
		lines = append(lines, line)
		return nil
	}))
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
