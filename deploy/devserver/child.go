package devserver

import (
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// child is a server process that does not outlive this one.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer // closing it tells the server that its parent is gone
	stderr  tail
	asked   atomic.Bool // whether we ended it
	done    chan struct{}
	waitErr error // set before done is closed
}

// startChild starts cmd in its own process group: a Ctrl-C on the terminal must reach only us,
// because we stop the server last.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = &c.stderr
	cmd.WaitDelay = 5 * time.Second // for a grandchild that keeps stderr open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	started := make(chan error)
	go func() {
		// The kernel signals a child when the thread that started it ends, so this thread stays until the
		// child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.waitErr = cmd.Wait()
			close(c.done)
		}
	}()
	return c, <-started
}

func (c *child) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop asks the child to end and reports whether it did within limit.
func (c *child) stop(limit time.Duration) bool {
	if c.hasEnded() {
		return true
	}
	c.asked.Store(true)
	c.signal(syscall.SIGTERM)
	_ = c.stdin.Close()
	select {
	case <-c.done:
		return true
	case <-time.After(limit):
		return false
	}
}

func (c *child) kill() {
	if c.hasEnded() {
		return
	}
	c.asked.Store(true)
	c.signal(syscall.SIGKILL)
	<-c.done
}

// signal reaches the whole process group: the temporal on PATH may be a script around the real one.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, s) }

// lastStderr returns what the child last wrote to stderr, on separate lines, for the end of an
// error message.
func (c *child) lastStderr() string {
	text := strings.TrimSpace(c.stderr.String())
	if text == "" {
		return " (it printed no error)"
	}
	return "; it printed:\n" + text
}

// tail is a writer that keeps the last bytes.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailSize; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
