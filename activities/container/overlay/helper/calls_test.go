package helper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/boxtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// objects are what each case of a system call finds in a folder of its own.
var objects = []string{"file", "empty", "hard", "hard2", "link", "dangling", "full", "bare", "pipe", "noted", "missing"}

func makeObjects(in string) error {
	at := func(name string) string { return filepath.Join(in, name) }
	return errors.Join(
		os.MkdirAll(at("full/sub"), 0o755), os.Mkdir(at("bare"), 0o700),
		os.WriteFile(at("file"), []byte("one two three\n"), 0o600), os.WriteFile(at("empty"), nil, 0o644),
		os.WriteFile(at("hard"), []byte("shared\n"), 0o640), os.Link(at("hard"), at("hard2")),
		os.WriteFile(at("full/x"), []byte("x\n"), 0o644), os.WriteFile(at("full/sub/y"), []byte("y\n"), 0o644),
		os.Symlink("file", at("link")), os.Symlink("nowhere", at("dangling")), unix.Mkfifo(at("pipe"), 0o600),
		os.WriteFile(at("noted"), []byte("noted\n"), 0o644), unix.Setxattr(at("noted"), "user.note", []byte("kept"), 0),
	)
}

// withFile does something with a file that is open.
func withFile(at string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(at, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

func write(text string) func(int) error {
	return func(fd int) error { _, err := unix.Write(fd, []byte(text)); return err }
}

// calls of one object.
var calls = map[string]func(at string) error{
	"unlink":      unix.Unlink,
	"rmdir":       unix.Rmdir,
	"truncate":    func(at string) error { return unix.Truncate(at, 3) },
	"extend":      func(at string) error { return unix.Truncate(at, 100_000) },
	"rewrite":     func(at string) error { return withFile(at, unix.O_WRONLY|unix.O_TRUNC, write("new")) },
	"append":      func(at string) error { return withFile(at, unix.O_WRONLY|unix.O_APPEND, write("more")) },
	"create":      func(at string) error { return withFile(at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, write("made")) },
	"no follow":   func(at string) error { return withFile(at, unix.O_RDWR|unix.O_NOFOLLOW, write("here")) },
	"chmod":       func(at string) error { return unix.Chmod(at, 0o741) },
	"chown":       func(at string) error { return unix.Lchown(at, 12, 34) },
	"setxattr":    func(at string) error { return unix.Setxattr(at, "user.new", []byte("value"), unix.XATTR_CREATE) },
	"removexattr": func(at string) error { return unix.Removexattr(at, "user.note") },
	"mkdir":       func(at string) error { return unix.Mkdir(at, 0o750) },
	"mkdir in":    func(at string) error { return unix.Mkdir(at+"/new", 0o750) },
	"symlink":     func(at string) error { return unix.Symlink("to", at) },
	"mknod":       func(at string) error { return unix.Mknod(at, unix.S_IFIFO|0o600, 0) },
	"remove and make": func(at string) error {
		return errors.Join(os.RemoveAll(at), unix.Mkdir(at, 0o700), os.WriteFile(at+"/only", nil, 0o600))
	},
	"write after unlink": func(at string) error {
		return withFile(at, unix.O_RDWR, func(fd int) error { return errors.Join(unix.Unlink(at), write("gone")(fd)) })
	},
	"replace": func(at string) error {
		return errors.Join(os.WriteFile(at+".new", []byte("replaced"), 0o600), unix.Rename(at+".new", at))
	},
	"map": func(at string) error {
		return withFile(at, unix.O_RDWR, func(fd int) error {
			to, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			if st := (unix.Stat_t{}); unix.Fstat(fd, &st) == nil && st.Size >= 4 {
				copy(to, "MAPS")
			}
			return errors.Join(unix.Msync(to, unix.MS_SYNC), unix.Munmap(to))
		})
	},
	"punch": func(at string) error {
		return withFile(at, unix.O_RDWR, func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1, 3)
		})
	},
	"no name": func(at string) error {
		return withFile(at, unix.O_TMPFILE|unix.O_RDWR, func(fd int) error {
			return errors.Join(write("named")(fd), unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, at+"/named", unix.AT_SYMLINK_FOLLOW))
		})
	},
}

// pairs are calls of two objects.
var pairs = map[string]func(from, to string) error{
	"rename": unix.Rename,
	"no replace": func(from, to string) error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	},
	"exchange": func(from, to string) error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	},
	"link": unix.Link,
	"into": func(from, to string) error { return unix.Rename(from, to+"/moved") },
	"and back": func(from, to string) error {
		return errors.Join(unix.Rename(from, to+".aside"), unix.Rename(to+".aside", from))
	},
}

// callCase is a system call in a folder of its own.
type callCase struct {
	name string
	on   []string
	do   func(in string) error
}

func callCases() (all []callCase) {
	for call, do := range calls {
		for _, object := range objects {
			all = append(all, callCase{call, []string{object}, func(in string) error { return do(filepath.Join(in, object)) }})
		}
	}
	for call, do := range pairs {
		for _, from := range objects {
			for _, to := range objects {
				all = append(all, callCase{call, []string{from, to}, func(in string) error { return do(filepath.Join(in, from), filepath.Join(in, to)) }})
			}
		}
	}
	slices.SortFunc(all, func(a, b callCase) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (c callCase) String() string { return c.name + " " + strings.Join(c.on, " ") }

// isTold reports whether plans name the difference: a folder below a layer is not renamed, the names of one file part, and a
// new name of a file has another inode number.
func (c callCase) isTold(layered string) bool {
	folder := func(name string) bool { return name == "full" || name == "bare" }
	hard := func(name string) bool { return strings.HasPrefix(name, "hard") }
	exdev := strings.HasPrefix(layered, unix.EXDEV.Error())
	linked := c.name == "link" && strings.HasPrefix(layered, "<nil>")
	return exdev && slices.ContainsFunc(c.on, folder) || slices.ContainsFunc(c.on, hard) || linked
}

// shownIn is all that is in a folder, without times.
func shownIn(in string) (string, error) {
	var b strings.Builder
	names := map[uint64]string{}
	err := filepath.WalkDir(in, func(at string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err = errors.Join(err, unix.Lstat(at, &st)); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n%s %o %d:%d", strings.TrimPrefix(at, in), st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			if names[st.Ino] == "" {
				names[st.Ino] = at
			}
			note := make([]byte, 100)
			n, _ := unix.Listxattr(at, note)
			fmt.Fprintf(&b, " %q %d names, as %s %q", content[:min(len(content), 200)], st.Nlink, strings.TrimPrefix(names[st.Ino], in), note[:max(n, 0)])
		case unix.S_IFLNK:
			to, err := os.Readlink(at)
			fmt.Fprintf(&b, " -> %s %v", to, err)
		}
		return nil
	})
	return b.String(), err
}

// outcomes makes the calls in a box with layers over it, and returns what each has come to.
func outcomes(t *testing.T, all []callCase, layers int) []string {
	t.Helper()
	k := keepIn(t, boxtest.New(t, boxtest.Sleeps))
	at := func(i int) string { return "/srv/" + strconv.Itoa(i) }
	k.Inside(func() error {
		for i := range all {
			if err := errors.Join(os.Mkdir(at(i), 0o755), makeObjects(at(i))); err != nil {
				return err
			}
		}
		return nil
	})
	for n := range layers {
		k.must(Take, name(strconv.Itoa(n)))
		k.Inside(func() error { return os.WriteFile("/srv/step", []byte(strconv.Itoa(n)), 0o600) })
	}
	if layers > 0 {
		k.must(Take, name("last"))
	}
	came := make([]string, len(all))
	k.Inside(func() (err error) {
		for i, c := range all {
			came[i] = fmt.Sprint(c.do(at(i)))
		}
		for i := range all {
			shown, failed := shownIn(at(i))
			came[i], err = strings.ReplaceAll(came[i], at(i), "")+shown, errors.Join(err, failed)
		}
		return err
	})
	return came
}

func TestSystemCallsDoInLayersWhatTheyDoWithoutButForWhatPlansTell(t *testing.T) {
	t.Parallel()
	all := callCases()
	require.Greater(t, len(all), 900)
	bare := outcomes(t, all, 0)
	for _, layers := range []int{1, 50} {
		t.Run(strconv.Itoa(layers)+" deep", func(t *testing.T) {
			if layers > 1 {
				testrun.Sampled(t)
			}
			told := 0
			for i, came := range outcomes(t, all, layers) {
				if came == bare[i] {
					continue
				}
				if all[i].isTold(came) {
					told++
					continue
				}
				assert.Equal(t, bare[i], came, "%s", all[i])
			}
			assert.NotZero(t, told)
			t.Logf("%d of %d calls differ as plans tell", told, len(all))
		})
	}
}
