// Package boxtest makes containers for tests without an engine: a process in namespaces of its own,
// whose root is an overlay with an engine's filesystems on it, and whose programs are the host's.
package boxtest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

const boxEnv = "UNWIND_TEST_BOX"

func init() { //nolint:gochecknoinits // later the first thread may be another goroutine's
	runtime.LockOSThread() // a first thread that went inside could not end, and would stand there for ever
}

// Main makes this process a box where it was started as one. Call it first in TestMain.
func Main() {
	if dir := os.Getenv(boxEnv); dir != "" {
		fmt.Println("not a box:", beBox(dir))
		os.Exit(1)
	}
}

// beBox makes of this process, which is the first in namespaces of its own, what an engine makes of
// a container's: an overlay as its root, with the engine's filesystems on it. Its programs are the
// host's.
func beBox(dir string) error {
	root := filepath.Join(dir, "root")
	must := func(err error) {
		if err != nil {
			fmt.Println("not a box:", err)
			os.Exit(1)
		}
	}
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if os.Getenv(boxEnv+"_DEEP") != "" {
		must(unix.Mount("overlay", dir+"/lower", "overlay", 0,
			fmt.Sprintf("lowerdir=%s/lower,upperdir=%[1]s/deep/u,workdir=%[1]s/deep/w", dir)))
	}
	must(unix.Mount("overlay", root, "overlay", 0,
		fmt.Sprintf("lowerdir=%s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)))
	must(unix.Mount("/usr", root+"/usr", "", unix.MS_BIND, ""))
	must(unix.Mount("proc", root+"/proc", "proc", 0, ""))
	must(unix.Mount("tmpfs", root+"/dev", "tmpfs", 0, "mode=755"))
	must(os.Mkdir(root+"/dev/shm", 0o755))
	must(unix.Mount("tmpfs", root+"/dev/shm", "tmpfs", 0, ""))
	must(unix.Mknod(root+"/dev/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))) //nolint:gosec // a device number
	must(unix.PivotRoot(root, root))
	must(unix.Unmount("/", unix.MNT_DETACH))
	must(unix.Chdir("/"))
	if os.Getenv(boxEnv+"_WAITS") != "" {
		fmt.Println(waits)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is closed
	}
	program := strings.Fields(os.Getenv(boxEnv + "_RUNS"))
	return unix.Exec(program[0], program, nil)
}

// Box is a container under test.
type Box struct {
	// PID is its first process.
	PID int
	// Dir is a folder of the test's own, on the filesystem of the box.
	Dir string
	t   testing.TB
}

// Sleeps is a program that waits; it has an end, should the tests be killed.
const Sleeps = "/usr/bin/sleep 600"

// New starts a box whose first process is a program of the host's in /usr. It is gone after the
// test.
func New(t testing.TB, runs string) *Box {
	t.Helper()
	b, c := newBox(t, runs)
	c.Stdout = os.Stdout // where it says why it cannot be one
	b.start(c)
	b.wait(runs)
	return b
}

// Deep starts a box whose root is an overlay over an overlay, as that of a container whose engine
// runs in a container may be: it bears no third one.
func Deep(t testing.TB) *Box {
	t.Helper()
	b, c := newBox(t, Sleeps)
	c.Stdout = os.Stdout
	c.Env = append(c.Env, boxEnv+"_DEEP=yes")
	b.start(c)
	b.wait(Sleeps)
	return b
}

const waits = "waits"

// Starting starts a box that stands, but whose first process becomes its program only when run is
// called.
func Starting(t testing.TB, runs string) (b *Box, run func()) {
	t.Helper()
	b, c := newBox(t, runs)
	c.Env = append(c.Env, boxEnv+"_WAITS=yes")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	b.start(c)
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, waits+"\n", said)
	return b, func() { _ = in.Close() }
}

// newBox is a box with its folders, and the command that becomes it.
func newBox(t testing.TB, runs string) (*Box, *exec.Cmd) {
	t.Helper()
	testrun.NeedRoot(t, "overlays")
	at := t.TempDir()
	for _, d := range []string{"root", "lower", "upper", "work", "deep/u", "deep/w", "lower/usr", "lower/proc",
		"lower/dev", "lower/srv", "lower/tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(at, d), 0o755))
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		require.NoError(t, os.Symlink("usr/"+link, filepath.Join(at, "lower", link)))
	}
	c := exec.Command("/proc/self/exe")
	c.Env = []string{boxEnv + "=" + at, boxEnv + "_RUNS=" + runs}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	return &Box{Dir: at, t: t}, c
}

func (b *Box) start(c *exec.Cmd) {
	b.t.Helper()
	require.NoError(b.t, c.Start())
	b.t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	b.PID = c.Process.Pid
}

// wait waits until the program runs.
func (b *Box) wait(runs string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(b.PID) + "/cmdline")
		return strings.HasPrefix(string(line), strings.Fields(runs)[0])
	}, 60e9, 5e6, "the box does not run")
}

// At is a box that somebody else has started: a container of an engine.
func At(t testing.TB, pid int) *Box { return &Box{PID: pid, t: t} }

// Do runs a shell command as docker exec does, at the topmost root, and returns what it says.
func (b *Box) Do(command string) string {
	b.t.Helper()
	out, err := b.Command(command).CombinedOutput()
	require.NoError(b.t, err, "%s: %s", command, out)
	return string(out)
}

// Command is a shell command at the topmost root, with a PATH of the box's own.
func (b *Box) Command(command string) *exec.Cmd {
	b.t.Helper()
	testrun.NeedProgram(b.t, "nsenter", "it is part of util-linux")
	c := exec.Command("nsenter", "-t", strconv.Itoa(b.PID), "-m", "-p", "/usr/bin/sh", "-c", command)
	c.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	c.Dir = "/"
	return c
}

// Start runs a command that goes on, and returns when it has said a line. said waits for its next
// line, wait for its end.
func (b *Box) Start(command string) (said func() string, wait func() error) {
	t := b.t
	t.Helper()
	c := b.Command(command)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	r := bufio.NewReader(out)
	said = func() string {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}
	said()
	return said, c.Wait
}

// Files is all that the topmost root shows, without its mounts.
func (b *Box) Files() string {
	b.t.Helper()
	var lines []string
	b.Inside(func() (err error) {
		lines, err = everything("/")
		return err
	})
	return strings.Join(lines, "\n")
}

// Inside runs f on a thread at the topmost root.
func (b *Box) Inside(f func() error) {
	b.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: so the thread ends
		ns, err := unix.Open("/proc/"+strconv.Itoa(b.PID)+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(ns, unix.CLONE_NEWNS), unix.Close(ns))
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	require.NoError(b.t, <-done)
}

// everything tells all about each path below a folder: kind, mode, owner, times to the nanosecond,
// links, attributes, content, and where holes are.
func everything(root string) (lines []string, err error) {
	var top unix.Stat_t
	if err := unix.Lstat(root, &top); err != nil {
		return nil, err
	}
	first := map[uint64]string{}
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return err
		}
		if d.IsDir() && st.Dev != top.Dev {
			return fs.SkipDir
		}
		line := fmt.Sprintf("%s %o %d:%d %d.%09d %d:%d", at, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec,
			unix.Major(st.Rdev), unix.Minor(st.Rdev))
		has, err := attributes(at)
		if err != nil {
			return err
		}
		line += has
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(at) //nolint:gosec // nobody else is in the box
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes, holes %v %x", st.Size, st.Blocks*512 < st.Size, sha256.Sum256(content))
			if st.Nlink > 1 {
				if _, ok := first[st.Ino]; !ok {
					first[st.Ino] = at
				}
				line += fmt.Sprintf(" %d links, as %s", st.Nlink, first[st.Ino])
			}
		case unix.S_IFLNK:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	return lines, err
}

func attributes(at string) (string, error) {
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(at, list)
	if err != nil {
		return "", err
	}
	names := strings.Split(string(list[:n]), "\x00")
	sort.Strings(names)
	var said strings.Builder
	for _, name := range names {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(at, name, value)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&said, " %s=%x", name, value[:n])
	}
	return said.String(), nil
}

// ChangeEverything makes each kind of thing that a filesystem holds, below /srv. It needs what
// ForEverything makes. The file that gets two names is a new one: of one that it has copied up an
// overlay forgets that until it is mounted anew.
func (b *Box) ChangeEverything() {
	b.t.Helper()
	b.Do(everyChange)
	b.Inside(func() error {
		list, err := hex.DecodeString("0200000001000600ffffffff02000400393000000400" +
			"0400ffffffff10000600ffffffff20000400ffffffff")
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return errors.Join(
			unix.Bind(s, &unix.SockaddrUnix{Name: "/srv/socket"}),
			unix.Setxattr("/srv/hard", "user.note", []byte("kept"), 0),
			unix.Setxattr("/srv/d", "trusted.note", []byte{0, 1}, 0),
			unix.Setxattr("/srv/hard", "system.posix_acl_access", list, 0),
		)
	})
}

const everyChange = `set -e; cd /srv
rm a/b/f; echo new >a/b/f; echo more >>c/g; rm -r e; mkdir e; echo other >e/y; mv c d; cp -a d c
ln a/b/f hard; ln -s nowhere dangling; mkfifo -m 600 pipe; mknod -m 640 dev b 7 9; chown 12:34 a
truncate -s 8M sparse; echo end >>sparse; chmod 2755 d; touch -d @1000000000.987654321 d/g
chmod 710 /`

// ForEverything makes what ChangeEverything changes.
func (b *Box) ForEverything() {
	b.t.Helper()
	b.Do("cd /srv; mkdir -p a/b c; echo x >a/b/f; echo y >c/g; ln -s /usr/bin out; mkdir e; echo z >e/z")
}
