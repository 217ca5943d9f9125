package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// Pool is a role whose processes do one job after another: a job needs a new process only where
// none waits for one.
type Pool[Job any] struct {
	// Name is the name of the processes, by which the program recognises its role.
	Name string

	attended atomic.Bool
	mu       sync.Mutex
	idle     []*member
}

// member is a process of a pool, and the socket by which it gets its jobs.
type member struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	idle *time.Timer
}

// idleFor is how long a process waits for its next job.
const idleFor = time.Minute

// Attend makes this program able to play the role, like [Role.Attend]. A process that has done its
// job ends with whoever started it, or when nobody has another one for it; one whose job has failed
// ends at once.
func (p *Pool[Job]) Attend(main func(Job) error) {
	p.attended.Store(true)
	Dispatch(p.Name, func() error {
		signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
		starter, err := net.FileConn(os.Stdin)
		if err != nil {
			return err
		}
		conn, ok := starter.(*net.UnixConn)
		if !ok {
			return fmt.Errorf("standard input is a socket of kind %T", starter)
		}
		for {
			var job Job
			lock, err := receive(conn, &job)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = main(job)
			}
			if err != nil {
				return err // the lock is free when the process has ended
			}
			lock.Close()
			if _, err := conn.Write([]byte{0}); err != nil {
				return nil //nolint:nilerr // whoever started it is dead
			}
		}
	})
}

// receive waits for a job, and for the lock that is held until it is done.
func receive(conn *net.UnixConn, job any) (lock *os.File, err error) {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	got, n, _, _, err := conn.ReadMsgUnix(first, rights)
	if err == nil && got == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("a job has no lock"))
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(files[0]), "lock"), json.NewDecoder(conn).Decode(job)
}

// Attended reports whether this program can play the role.
func (p *Pool[Job]) Attended() bool { return p.attended.Load() }

// Do hands a job to a process that has been started with this setup and returns when it is handed
// over; over is closed when the process has done it or has ended. Until then it holds the lock,
// whatever becomes of this process. The caller's own lock stays its own.
func (p *Pool[Job]) Do(job Job, lock *filelock.Lock, s Setup) (over <-chan struct{}, err error) {
	if !p.Attended() {
		return nil, notAttended(p.Name)
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	m := p.take(s)
	for m != nil && m.hand(encoded, lock) != nil { // it has been killed
		m.dismiss()
		m = p.take(s)
	}
	if m == nil {
		if m, err = p.start(s); err != nil {
			return nil, fmt.Errorf("starting %s: %w", p.Name, err)
		}
		if err := m.hand(encoded, lock); err != nil {
			m.dismiss()
			return nil, fmt.Errorf("handing %s its job: %w", p.Name, err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := io.ReadFull(m.conn, make([]byte, 1)); err != nil {
			m.dismiss()
			return
		}
		p.keep(m)
	}()
	return ended, nil
}

// take takes a process out of the pool; nil where none waits that was started with this setup.
func (p *Pool[Job]) take(s Setup) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range slices.Backward(p.idle) {
		if slices.Equal(m.cmd.Env, s.Env) && m.cmd.Dir == s.Dir {
			p.idle = slices.Delete(p.idle, i, i+1)
			m.idle.Stop()
			return m
		}
	}
	return nil
}

func (p *Pool[Job]) keep(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, m)
	m.idle = time.AfterFunc(idleFor, func() { p.end(m) })
}

// end ends a process that is still idle.
func (p *Pool[Job]) end(m *member) {
	p.mu.Lock()
	i := slices.Index(p.idle, m)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		m.dismiss()
	}
}

func (p *Pool[Job]) start(s Setup) (*member, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(ends[0]), "jobs"), os.NewFile(uintptr(ends[1]), "jobs")
	defer theirs.Close()
	defer ours.Close() // the connection has its own
	c := command(p.Name, s)
	c.Stdin = theirs
	if err := c.Start(); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	return &member{cmd: c, conn: conn.(*net.UnixConn)}, nil //nolint:forcetypeassert // it was made as one
}

func (m *member) hand(job []byte, lock *filelock.Lock) error {
	if _, _, err := m.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(lock.File().Fd())), nil); err != nil {
		return err
	}
	_, err := m.conn.Write(job)
	return err
}

// dismiss lets a process end and waits for that.
func (m *member) dismiss() {
	m.conn.Close()
	_ = m.cmd.Wait() // its exit status matters to nobody
}
