package calltest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// objects are what each case of a system call finds in a folder of its own.
var objects = []string{"file", "empty", "hard", "hard2", "link", "dangling", "full", "bare", "pipe", "noted", "missing"}

// MakeObjects makes the objects of each case in a folder of its own below in.
func MakeObjects(in string) error {
	for i := range Cases() {
		if err := makeObjects(filepath.Join(in, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

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
			return errors.Join(write("named")(fd),
				unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, at+"/named", unix.AT_SYMLINK_FOLLOW))
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

// Case is a system call in a folder of its own.
type Case struct {
	name string
	on   []string
	do   func(in string) error
}

// Cases are all calls of all objects, sorted by name.
func Cases() (all []Case) {
	for call, do := range calls {
		for _, object := range objects {
			all = append(all, Case{call, []string{object}, func(in string) error { return do(filepath.Join(in, object)) }})
		}
	}
	for call, do := range pairs {
		for _, from := range objects {
			for _, to := range objects {
				all = append(all,
					Case{call, []string{from, to},
						func(in string) error { return do(filepath.Join(in, from), filepath.Join(in, to)) }})
			}
		}
	}
	slices.SortFunc(all, func(a, b Case) int { return strings.Compare(a.String(), b.String()) })
	return all
}

func (c Case) String() string { return c.name + " " + strings.Join(c.on, " ") }

// Call makes the call of each case in its folder below in, and returns what each has come to: its
// error, and what the folder shows when all are made.
func Call(in string) ([]string, error) {
	all := Cases()
	came := make([]string, len(all))
	at := func(i int) string { return filepath.Join(in, strconv.Itoa(i)) }
	for i, c := range all {
		came[i] = strings.ReplaceAll(fmt.Sprint(c.do(at(i))), at(i), "")
	}
	for i := range all {
		seen, err := Show(at(i))
		if err != nil {
			return nil, err
		}
		came[i] += seen
	}
	return came, nil
}

// IsTold reports whether plans name the difference: what [Plain] leaves out; a folder that lies
// below the layer is not renamed; the names of one file part; a new name of a file that is in no
// layer, which own says that all are, has another inode number.
func (c Case) IsTold(bare, layered string, own bool) bool {
	bare, layered = Plain(bare), Plain(layered)
	if bare == layered {
		return true
	}
	if strings.HasPrefix(layered, unix.EXDEV.Error()) {
		return c.isOn("full") || c.isOn("bare")
	}
	if c.isOn("hard") || c.isOn("hard2") {
		parted := func(came string) string { return hardLines.ReplaceAllString(fileCounts.ReplaceAllString(came, ""), "") }
		return parted(bare) == parted(layered)
	}
	linked := func(came string) string { return fileCounts.ReplaceAllString(came, "") }
	return own && c.name == "link" && linked(bare) == linked(layered)
}

// IsToldOverFuse reports whether plans name the difference where the bare container is on
// fuse-overlayfs, which has no O_TMPFILE.
func (c Case) IsToldOverFuse(bare string) bool {
	return c.name == "no name" && strings.HasPrefix(bare, unix.EOPNOTSUPP.Error())
}

var (
	fileCounts = regexp.MustCompile(` \d+ names, as "[^"]*"`)
	hardLines  = regexp.MustCompile(`\n"/hard.*`)
)

func (c Case) isOn(object string) bool { return slices.Contains(c.on, object) }
