package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/process"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

// The calls that a process can be started for.
const (
	opPlan    = "plan"
	opApply   = "apply"
	opUndo    = "undo"
	opObserve = "observe"
	opRelease = "release"
	opQuery   = "query"
)

// job is one call of an action.
type job struct {
	Op       string               `json:"op"`
	Config   Config               `json:"config"`
	Entry    activities.Entry     `json:"entry"`
	Step     activities.Step      `json:"step"`
	Want     activities.Digest    `json:"want,omitempty"`
	Approval *activities.Approval `json:"approval,omitempty"`
	Decision activities.Decision  `json:"decision,omitzero"`
	Owner    activities.Owner     `json:"owner"`
	// Private says that the parameters hold a secret, so that no value of a row may be shown later on.
	Private bool `json:"private,omitempty"`
}

// message is sent by the process: it has reached a point, or has ended.
type message struct {
	Point  string               `json:"point,omitempty"`
	Result json.RawMessage      `json:"result,omitempty"`
	Type   activities.ErrorType `json:"type,omitempty"`
	Error  string               `json:"error,omitempty"`
}

const (
	roleName = "unwind-sqlite"
	// stepVariable names the call that a process was started for: TOKEN/OP.
	stepVariable = "UNWIND_SQLITE_STEP"
	// stalled is how long a process, which may hold the lock of a database, waits for a worker that
	// does not answer.
	stalled = 30 * time.Second
)

var role = supervisor.Role[job]{Name: roleName}

// Attend lets the program run each call of the world in a process of its own. Call it first in main
// and in TestMain: it returns at once, except in such a process.
func Attend() { role.Attend(serve) }

// action runs every call in a process of its own, which an undo can kill: a stopped process keeps
// its locks on a database for ever. The separate process also protects these locks from the worker:
// within one process, closing a file drops all locks on it.
type action struct {
	*world

	spec activities.Spec
}

func (a *action) Spec() activities.Spec { return a.spec }

func (a *action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change, err error) {
	return c, a.call(ctx, job{Op: opPlan, Entry: e, Step: s}, &c)
}

func (a *action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	if s.Checks, err = placeChecks(s.Checks); err != nil {
		return r, err
	}
	op := opApply
	if a.spec.ReadOnly {
		op = opQuery
	}
	if err := a.call(ctx, job{Op: op, Entry: e, Step: s, Want: want}, &r); err != nil {
		return r, err
	}
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return r, err
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{a.world, p.Database})
}

func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone, err error) {
	return u, a.call(ctx, job{Op: opUndo, Entry: e, Decision: d}, &u)
}

func (a *action) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	return o, a.call(ctx, job{Op: opObserve, Entry: e}, &o)
}

func (a *action) Release(ctx context.Context, e activities.Entry) error {
	return a.call(ctx, job{Op: opRelease, Entry: e}, nil)
}

// call runs a job in a process and passes on the points that it reaches; the process waits at each
// until the worker has reached it too.
func (a *action) call(ctx context.Context, j job, result any) error {
	if err := a.journal.Check(j.Entry.Place.Journal); err != nil {
		return err
	}
	j.Config, j.Owner, j.Approval = a.Config, activities.OwnerOf(ctx), activities.ApprovalFrom(ctx)
	j.Private = activities.HoldsSecret(ctx, j.Step.With)
	receiver, sender, err := os.Pipe()
	if err != nil {
		return err
	}
	defer receiver.Close()
	env := childenv.Minimal("GORACE", "GOCOVERDIR", "SQLITE_TMPDIR")
	env[stepVariable] = j.Entry.Token + "/" + j.Op
	p, err := role.Start(j, supervisor.Setup{Env: childenv.List(env), Dir: "/", Stdout: sender, Stderr: os.Stderr})
	sender.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer func() {
		p.Kill()
		_, _ = p.Wait() // its messages have been read
		stop()
	}()
	for said := json.NewDecoder(receiver); ; {
		var m message
		if err := said.Decode(&m); err != nil {
			return a.explainEnd(ctx, j, err)
		}
		switch {
		case m.Point != "":
			point.Reach(m.Point)
			if err := p.Send([]byte{'g'}); err != nil {
				return a.explainEnd(ctx, j, err)
			}
		case m.Type != "":
			return activities.Errorf(m.Type, "%s", m.Error)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
}

// explainEnd explains why a process ended without a result: an undo has killed it, or something
// else has.
func (a *action) explainEnd(ctx context.Context, j job, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if j.Op == opApply || j.Op == opPlan {
		t, terr := a.journal.Token(j.Entry.Token)
		if terr == nil {
			terr = t.CheckOpen()
		}
		if terr != nil {
			return terr
		}
	}
	return fmt.Errorf("the process of %s has ended before it was done (killed, or out of memory): %w", j.Op, err)
}

// serve runs a job. If the worker dies, it exits at the next point, as if it had died there itself.
func serve(j job, worker io.Reader) error {
	said := json.NewEncoder(os.Stdout)
	point.Hook(func(label string) {
		giveUp := time.AfterFunc(stalled, func() { os.Exit(1) })
		defer giveUp.Stop()
		if err := said.Encode(message{Point: label}); err != nil {
			os.Exit(1)
		}
		if _, err := io.ReadFull(worker, make([]byte, 1)); err != nil {
			os.Exit(1)
		}
	})
	result, err := j.do(context.Background())
	if err != nil {
		m := message{Type: activities.TypeOf(err), Error: err.Error()}
		if e, ok := errors.AsType[*activities.Error](err); ok {
			m.Error = e.Message
		}
		return said.Encode(m)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return said.Encode(message{Result: raw})
}

func (j job) do(ctx context.Context) (any, error) {
	w, err := openWorld(j.Config)
	if err != nil {
		return nil, err
	}
	t, err := w.journal.Token(j.Entry.Token)
	if err != nil {
		return nil, err
	}
	c := &call{world: w, job: j, token: t}
	ctx = activities.WithOwner(ctx, j.Owner)
	switch j.Op {
	case opPlan:
		return c.plan(ctx)
	case opApply:
		return c.apply(ctx)
	case opUndo:
		return c.undo(ctx)
	case opObserve:
		return c.observe(ctx)
	case opRelease:
		return nil, c.release(ctx)
	case opQuery:
		return c.query(ctx)
	}
	return nil, fmt.Errorf("there is no call %q", j.Op)
}

// call is one call, in its process.
type call struct {
	*world
	job

	token *journal.Token
}

// reach reports the point after a side effect.
func (c *call) reach(what string) { point.Reach(c.Entry.Action + ":" + what) }

// patience is how long other calls of a token may continue before they are killed.
const patience = 10 * time.Second

// lockToken takes the lock of the token. It kills holders that cannot continue because their worker
// is stopped or dead. An undo kills forwards at once, and any other holder when its patience is
// over.
func (c *call) lockToken(ctx context.Context) (unlock func(), err error) {
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		unlock, err := c.token.Lock(try)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return unlock, err
		}
		for _, other := range c.listCalls() {
			if c.Op == opUndo && (other.op != opUndo || time.Since(began) > patience) || other.isStuck() {
				other.kill()
			}
			unix.Close(other.fd)
		}
		if time.Since(began) > 3*patience {
			return nil, fmt.Errorf("token %s: %w", c.Entry.Token, err)
		}
	}
}

// callProcess is a process that runs a call.
type callProcess struct {
	pid int
	fd  int
	op  string
}

// listCalls lists the processes that run other calls of this token. The caller closes their
// descriptors.
func (c *call) listCalls() (calls []callProcess) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || strings.TrimRight(string(name), "\x00") != roleName {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0) // before its token is read: the signal reaches no other process
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if op, found := findVariable(string(env), stepVariable, c.Entry.Token); found {
			calls = append(calls, callProcess{pid, fd, op})
			continue
		}
		unix.Close(fd)
	}
	return calls
}

func findVariable(env, name, token string) (op string, found bool) {
	for v := range strings.SplitSeq(env, "\x00") {
		if op, found = strings.CutPrefix(v, name+"="+token+"/"); found {
			return op, true
		}
	}
	return "", false
}

// isStuck reports whether a process, or the worker that started it, is stopped.
func (p callProcess) isStuck() bool {
	is, err := process.ReadStatus(p.pid)
	if err != nil {
		return false
	}
	if is.IsStopped() {
		return true
	}
	worker, err := process.ReadStatus(is.Parent)
	return err == nil && worker.IsStopped()
}

func (p callProcess) kill() {
	_ = unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) // it may have just ended
}
