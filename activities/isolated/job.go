package isolated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

// Op is the method of an action that a process is started for.
type Op string

// Query is the Apply of an action that only reads.
const (
	Plan    Op = "plan"
	Apply   Op = "apply"
	Undo    Op = "undo"
	Observe Op = "observe"
	Release Op = "release"
	Query   Op = "query"
)

// Job is one call of an action.
type Job[Config any] struct {
	Op       Op                   `json:"op"`
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

// stalled is how long a process, which may hold the lock of a database, waits for a worker that
// does not answer.
const stalled = 30 * time.Second

// Calls starts the processes of a world, and is what they run.
type Calls[Config any] struct {
	role *supervisor.Role[Job[Config]]
	do   func(context.Context, Job[Config]) (any, error)
	keep []string
}

// New names the processes of a world, and what does a job in them; its result is encoded as JSON.
// keep are the variables of the environment that they have besides those of every program.
func New[Config any](name string, do func(context.Context, Job[Config]) (any, error), keep ...string) *Calls[Config] {
	return &Calls[Config]{role: &supervisor.Role[Job[Config]]{Name: name}, do: do, keep: keep}
}

// Attend lets the program run the calls. Call it first in main and in TestMain: it returns at once,
// except in such a process.
func (c *Calls[Config]) Attend() { c.role.Attend(c.serve) }

// Attended reports whether the program can run the calls.
func (c *Calls[Config]) Attended() bool { return c.role.Attended() }

// Variable names the call that a process was started for: TOKEN/OP. What a call starts must have it,
// so that it can be found.
const Variable = "UNWIND_CALL"

// Run runs a job in a process and passes on the points that it reaches; the process waits at each
// until the worker has reached it too. j is the journal of the job's entry.
func (c *Calls[Config]) Run(ctx context.Context, j *journal.Journal, job Job[Config], result any) error {
	if err := j.Check(job.Entry.Place.Journal); err != nil {
		return err
	}
	job.Owner, job.Approval = activities.OwnerOf(ctx), activities.ApprovalFrom(ctx)
	job.Private = activities.HoldsSecret(ctx, job.Step.With)
	receiver, sender, err := os.Pipe()
	if err != nil {
		return err
	}
	defer receiver.Close()
	env := childenv.Minimal(append([]string{"GORACE", "GOCOVERDIR"}, c.keep...)...)
	env[Variable] = job.Entry.Token + "/" + string(job.Op)
	p, err := c.role.Start(job, supervisor.Setup{Env: childenv.List(env), Dir: "/", Stdout: sender, Stderr: os.Stderr})
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
			return explainEnd(ctx, j, job.Op, job.Entry.Token, err)
		}
		switch {
		case m.Point != "":
			point.Reach(m.Point)
			if err := p.Send([]byte{'g'}); err != nil {
				return explainEnd(ctx, j, job.Op, job.Entry.Token, err)
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
func explainEnd(ctx context.Context, j *journal.Journal, op Op, token string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if op == Apply || op == Plan {
		t, terr := j.Token(token)
		if terr == nil {
			terr = t.CheckOpen()
		}
		if terr != nil {
			return terr
		}
	}
	return fmt.Errorf("the process of %s has ended before it was done (killed, or out of memory): %w", op, err)
}

// serve runs a job. If the worker dies, it exits at the next point, as if it had died there itself.
func (c *Calls[Config]) serve(job Job[Config], worker io.Reader) error {
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
	result, err := c.do(activities.WithOwner(context.Background(), job.Owner), job)
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
