package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// supervisorName is the name under which a program starts itself as a supervisor.
const supervisorName = "unwind-exec-supervisor"

var attended atomic.Bool

// Attend makes this program able to supervise commands in containers. Call it first in main, and first in TestMain: in
// a process that was started as a supervisor it does that work and never returns.
//
// An engine forgets the output of a command whose client has gone, and soon its exit status. So the client is a process
// of its own, in a session of its own, that survives the worker and writes what the command said and how it ended into
// the journal. A worker that runs as a systemd unit needs KillMode=process for that.
func Attend() {
	helper.Attend()
	if filepath.Base(os.Args[0]) != supervisorName {
		attended.Store(true)
		return
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	if err := supervise(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is what a supervisor is told on its standard input: it may hold secrets and is never on the disk.
type job struct {
	Journal string  `json:"journal"`
	Token   string  `json:"token"`
	Attempt int     `json:"attempt"`
	Host    string  `json:"host,omitempty"`
	Target  string  `json:"target"`
	Command command `json:"command"`
}

// begun is the document that says: from now on the command may be running.
type begun struct {
	Exec      string    `json:"exec"`
	Container string    `json:"container"`
	PID       int       `json:"pid"`
	At        time.Time `json:"at"`
}

// ended is the document that says how a command ended.
type ended struct {
	// Refused is the engine's reason why the command never ran.
	Refused string `json:"refused,omitempty"`
	Exit    int    `json:"exit"`
	Stdout  []byte `json:"stdout,omitempty"`
	// More says that Stdout is only the beginning.
	More bool `json:"more,omitempty"`
}

func begunDoc(attempt int) string  { return fmt.Sprintf("begun-%d", attempt) }
func endedDoc(attempt int) string  { return fmt.Sprintf("ended-%d", attempt) }
func logName(attempt int) string   { return fmt.Sprintf("log-%d", attempt) }
func aliveName(attempt int) string { return fmt.Sprintf("alive-%d", attempt) }

// supervise runs one command to its end. It returns without an ended document where it cannot tell how it ended.
func supervise(input *os.File) error {
	var j job
	if err := json.NewDecoder(input).Decode(&j); err != nil {
		return fmt.Errorf("no job: %w", err) // the worker died before it had said all
	}
	ctx := context.Background()
	e, err := connect(j.Host)
	if err != nil {
		return err
	}
	records, err := journal.Open(j.Journal)
	if err != nil {
		return err
	}
	t, err := records.Token(j.Token)
	if err != nil {
		return err
	}
	id, err := enter(ctx, e, j.Target, j.Command)
	if err == nil {
		err = attend(ctx, e, t, j, id)
	}
	if errors.Is(err, errNotRun) {
		_, err = t.Create(endedDoc(j.Attempt), &ended{Refused: err.Error()})
	}
	return err
}

func attend(ctx context.Context, e engine, t *journal.Token, j job, id string) error {
	f, err := os.OpenFile(filepath.Join(t.Dir(), logName(j.Attempt)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.CheckOpen(); err != nil {
		return err
	}
	first, err := t.Create(begunDoc(j.Attempt), &begun{Exec: id, Container: j.Target, PID: os.Getpid(), At: time.Now().UTC()})
	if err != nil || !first {
		return errors.Join(err, errors.New("this attempt has begun already"))
	}
	log, stdout := newLog(f), &firstBytes{}
	exit, err := run(ctx, e, id, io.MultiWriter(log, stdout), log)
	if err != nil {
		return err
	}
	if err := errors.Join(log.finish(), f.Sync()); err != nil {
		return err
	}
	_, err = t.Create(endedDoc(j.Attempt), &ended{Exit: exit, Stdout: stdout.kept, More: stdout.more})
	return err
}

// start starts a supervisor that holds lock for as long as it lives. It returns when the supervisor has been told all.
func (x *execAction) start(j job, lock *os.File) error {
	if !attended.Load() {
		return activities.Errorf(activities.Refused, "this program cannot run commands in containers: its main function must call container.Attend first")
	}
	told, err := json.Marshal(j)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	c := exec.Command("/proc/self/exe")
	c.Args = []string{supervisorName}
	c.Env = supervisorEnv()
	c.Dir = "/"
	c.Stdin = r
	c.ExtraFiles = []*os.File{lock}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	r.Close()
	if err != nil {
		return fmt.Errorf("starting a supervisor for the command: %w", err)
	}
	go func() { _ = c.Wait() }() // how it exits is nobody's business: the journal tells
	_, err = w.Write(told)
	return err
}

// supervisorEnv is what a client of the engine needs to find it, and nothing else of the worker's.
func supervisorEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "DOCKER_") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PATH=") {
			env = append(env, v)
		}
	}
	return env
}

// writable says why a supervisor can write nothing in a folder.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 16<<10)) // a log and two documents
	return errors.Join(err, f.Sync(), f.Close())
}

// lockAlive takes the lock that the supervisor of an attempt holds for its life. It is not ok while one lives.
func lockAlive(t *journal.Token, attempt int) (lock *os.File, ok bool, err error) {
	f, err := os.OpenFile(filepath.Join(t.Dir(), aliveName(attempt)), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, false, nil
	}
	return nil, false, err
}
