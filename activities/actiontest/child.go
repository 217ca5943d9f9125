package actiontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// orderVariable names the environment variable that makes a test binary a child: the path of its
// order.
const orderVariable = "UNWIND_ACTIONTEST_ORDER"

// The calls that a child can make, and the ways in which it can break.
const (
	opPlan  = "plan"
	opApply = "apply"
	opUndo  = "undo"
	opReset = "reset"

	breakKill = "kill"
	breakStop = "stop"
)

// order is what a child does.
type order struct {
	Case     string              `json:"case"`
	Dir      string              `json:"dir"`
	Op       string              `json:"op"`
	Work     forward             `json:"work"`
	Want     activities.Digest   `json:"want,omitempty"`
	Decision activities.Decision `json:"decision"`
	// Break is what the child does to itself at the At-th point that it reaches, counted from 0; empty
	// for nothing.
	Break    string        `json:"break,omitempty"`
	At       int           `json:"at"`
	Patience time.Duration `json:"patience"`
	// Report is the file that the child writes at its end.
	Report string `json:"report"`
}

// report is what a child returns.
type report struct {
	Points []string             `json:"points"`
	Result activities.Result    `json:"result"`
	Undone activities.Undone    `json:"undone"`
	Type   activities.ErrorType `json:"type,omitempty"`
	Error  string               `json:"error,omitempty"`
}

// runOrder is the main function of a child.
func runOrder(path string, cases []Case) int {
	if err := carryOut(path, cases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func carryOut(path string, cases []Case) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	// A process that the action starts must not become a child of the suite.
	if err := os.Unsetenv(orderVariable); err != nil {
		return err
	}
	var c *Case
	for i := range cases {
		if cases[i].Name == o.Case {
			c = &cases[i]
		}
	}
	if c == nil {
		return fmt.Errorf("case %q was not handed to actiontest.Main", o.Case)
	}
	w, err := c.Open(o.Dir)
	if err != nil {
		return fmt.Errorf("opening the world: %w", err)
	}
	action, err := findAction(w, c.Action)
	if err != nil {
		return err
	}
	var r report
	r.hook(o)
	ctx, cancel := context.WithTimeout(activities.WithOwner(context.Background(), owner), o.Patience)
	defer cancel()
	ctx = activities.WithCheckCommands(ctx, []string{"*"})
	switch o.Op {
	case opPlan:
		_, err = action.Plan(ctx, o.Work.Entry, o.Work.Step)
	case opApply:
		r.Result, err = action.Apply(ctx, o.Work.Entry, o.Work.Step, o.Want)
	case opUndo:
		r.Undone, err = action.Undo(ctx, o.Work.Entry, o.Decision)
	case opReset:
		resetter, ok := action.(activities.Resetter)
		if !ok {
			return fmt.Errorf("%s has no Reset", c.Action)
		}
		r.Undone, err = resetter.Reset(ctx, o.Work.Entry, o.Decision)
	default:
		err = fmt.Errorf("no such call: %q", o.Op)
	}
	point.Hook(nil)
	if err != nil {
		r.Type, r.Error = activities.TypeOf(err), err.Error()
	}
	out, err := json.Marshal(&r)
	if err != nil {
		return err
	}
	return os.WriteFile(o.Report, out, 0o600)
}

// hook records the points in the order in which they are reached, and breaks the process at one of
// them.
func (r *report) hook(o order) {
	var mu sync.Mutex
	point.Hook(func(label string) {
		mu.Lock()
		defer mu.Unlock()
		r.Points = append(r.Points, label)
		if o.Break == "" || len(r.Points)-1 != o.At {
			return
		}
		signal := unix.SIGKILL
		if o.Break == breakStop {
			signal = unix.SIGSTOP
		}
		if err := unix.Kill(os.Getpid(), signal); err != nil {
			panic(err)
		}
		// The signal may take a moment to stop this thread, so the one that wakes the process also writes
		// to stdin.
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
	})
}

// child is a running process that calls an action.
type child struct {
	w      *world
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	said   bytes.Buffer
	report string
	// ended is closed when the process is gone; state is set by then.
	ended chan struct{}
	// reap allows the process to be waited for.
	reap func()
}

// spawn starts a child.
func (w *world) spawn(o order) *child {
	w.t.Helper()
	o.Case, o.Dir, o.Patience = w.Name, w.dir, w.Patience
	folder, err := os.MkdirTemp("", "actiontest-child-")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { os.RemoveAll(folder) })
	o.Report = filepath.Join(folder, "report")
	raw, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(folder, "order")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		w.t.Fatal(err)
	}
	c := &child{w: w, cmd: exec.Command(os.Args[0]), //nolint:gosec // this very test binary
		report: o.Report, ended: make(chan struct{})}
	// By default a program with the race detector sleeps for a second at its end.
	c.cmd.Env = append(os.Environ(), orderVariable+"="+path, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	// A file instead of a pipe, because processes that outlive the child would hold a pipe open.
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	started, reap := make(chan error), make(chan struct{})
	c.reap = sync.OnceFunc(func() { close(reap) })
	go func() {
		// The child dies with this thread (Pdeathsig), even if the test binary is killed while the child
		// is stopped.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		<-reap
		_ = c.cmd.Wait() // how it ended is read from ProcessState
		if raw, err := os.ReadFile(log.Name()); err == nil {
			c.said.Write(raw)
		}
		log.Close()
		close(c.ended)
	}()
	if err := <-started; err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.reap()
		_ = c.cmd.Process.Kill() // it usually ended long ago
		<-c.ended
	})
	return c
}

// wait waits for the end of the child and returns its report; a child that broke has none.
func (c *child) wait() report {
	c.w.t.Helper()
	r, err := c.awaitEnd()
	if err != nil {
		c.w.t.Fatal(err)
	}
	return r
}

func (c *child) awaitEnd() (report, error) {
	c.reap()
	select {
	case <-c.ended:
	case <-time.After(c.w.Patience + 30*time.Second):
		return report{}, errors.New("the child process does not end")
	}
	if !c.cmd.ProcessState.Success() {
		return report{}, fmt.Errorf("the child process ended with %v:\n%s", c.cmd.ProcessState, c.said.String())
	}
	raw, err := os.ReadFile(c.report)
	if err != nil {
		return report{}, err
	}
	var r report
	return r, json.Unmarshal(raw, &r)
}

// mustDie waits until the child has killed itself.
func (c *child) mustDie() {
	c.w.t.Helper()
	r, err := c.awaitEnd()
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() &&
		status.Signal() == syscall.SIGKILL {
		return
	}
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.t.Fatalf("the child did not come to its point; it reached %q and ended with %q", r.Points, r.Error)
}

// mustStop waits until the child has stopped itself.
func (c *child) mustStop() {
	c.w.t.Helper()
	done := startCall(func() (bool, error) {
		for {
			var info unix.Siginfo
			// WNOWAIT leaves a child that ended to Wait.
			err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return info.Code == cldStopped, err
		}
	})
	select {
	case a := <-done:
		if a.err != nil {
			c.w.t.Fatal(a.err)
		}
		if !a.value {
			r, err := c.awaitEnd()
			c.w.t.Fatalf("the child did not stop; it reached %q and ended with %q (%v)", r.Points, r.Error, err)
		}
	case <-time.After(c.w.Patience + 30*time.Second):
		c.w.t.Fatal("the child process does not come to its point")
	}
}

// cldStopped is CLD_STOPPED of waitid(2).
const cldStopped = 5

// wake makes a stopped child continue.
func (c *child) wake() {
	c.w.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.w.t.Fatal(err)
	}
	if _, err := c.stdin.Write([]byte{'\n'}); err != nil {
		c.w.t.Fatal(err)
	}
}
