package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

const queue = "unwind"

// world fakes all activities: it answers as a test says and records every call in order.
type world struct {
	mu    sync.Mutex
	calls []string
	count map[string]int

	steps    []task.Step
	deadline time.Duration
	refuse   error
	// do, plan and undo answer the n-th call for a step. By default they answer done, a change of low
	// risk, and restored.
	do   func(ctx context.Context, step string, n int, f activities.Forward) (activities.Result, error)
	plan func(step string, n int) (activities.Change, error)
	undo func(step string, n int, d activities.Decision) (activities.Undone, error)
	// commit answers the n-th commit. By default it succeeds.
	commit func(ctx context.Context, n int, c activities.Commitment) (activities.Committed, error)
	// hold answers a request to hold records. By default they are held.
	hold func(ctx context.Context, r protocol.HoldRequest) (protocol.Held, error)
	// preflight answers a look at steps that have a Preflight. By default nothing is refused.
	preflight func(protocol.PreflightRequest) (protocol.Preflight, error)
	// confirm answers the n-th question whether a context is there. By default it is, unless it is
	// lost.
	confirm func(ctx context.Context, n int) error
	// touched names what steps touch that are added to a session, by id, on the compiler's own host;
	// the hosts of those in unnamed are asked.
	touched map[string]activities.Touched
	unnamed []string
	// intent are the parameters that say what a step of a session is for.
	intent []string
	// risky has the steps of a session ask, unless they say gate: none.
	risky bool
	// late are the steps of a session that are named when they are about to run.
	late []string
	// paused is for how long the workflow says it was paused, whenever it is asked.
	paused time.Duration
	// seen is the state that a probe observes. By default it is unknown.
	seen activities.State
	// begun is the number of scheduled calls, in all runs of a chain.
	begun int
	// taskQueue is where steps of sessions run; empty: queue.
	taskQueue string
	// compiled is what the task says beside its steps.
	compiled task.Compiled
	// compiling is called before steps that are added, or other parameters, are compiled.
	compiling func()
}

func (w *world) called(what, step string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = map[string]int{}
	}
	w.calls = append(w.calls, what+" "+step)
	w.count[what+" "+step]++
	return w.count[what+" "+step]
}

func (w *world) Compile(_ context.Context, doc json.RawMessage) (task.Compiled, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(string(doc), `"session"`) {
		return w.compileSession(doc)
	}
	c := w.compiled
	c.Name, c.Agent, c.Steps, c.Deadline = "release", "bot", w.steps, w.deadline
	return c, w.refuse
}

func (w *world) Preflight(_ context.Context, r protocol.PreflightRequest) (protocol.Preflight, error) {
	var ids []string
	for _, s := range r.Steps {
		ids = append(ids, s.Step.ID)
	}
	w.called("preflight", strings.Join(ids, " "))
	if w.preflight == nil {
		return protocol.Preflight{}, nil
	}
	return w.preflight(r)
}

func (w *world) Do(ctx context.Context, f activities.Forward) (activities.Result, error) {
	n := w.called("do", f.Step.ID)
	if w.do == nil {
		return activities.Result{Summary: "did " + f.Step.ID}, nil
	}
	return w.do(ctx, f.Step.ID, n, f)
}

func (w *world) Plan(_ context.Context, f activities.Forward) (activities.Change, error) {
	n := w.called("plan", f.Step.ID)
	if w.plan == nil {
		return activities.Change{Summary: "would do " + f.Step.ID, Risk: activities.High, Digest: "sha256:change"}, nil
	}
	return w.plan(f.Step.ID, n)
}

func (w *world) Undo(_ context.Context, b activities.Backward) (activities.Undone, error) {
	n := w.called("undo", b.Entry.Step)
	if w.undo == nil {
		return activities.Undone{Outcome: activities.Restored, Observed: "as before"}, nil
	}
	return w.undo(b.Entry.Step, n, b.Decision)
}

func (w *world) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	w.called("observe", e.Step)
	return activities.Observation{State: cmp.Or(w.seen, activities.Unseen)}, nil
}

func (w *world) MakeDurable(ctx context.Context, c activities.Commitment) (activities.Committed, error) {
	n := w.called("commit", fmt.Sprintf("%d at %s", len(c.Tokens), c.Place.Journal))
	if w.commit == nil {
		return activities.Committed{}, nil
	}
	return w.commit(ctx, n, c)
}

func (w *world) Hold(ctx context.Context, r protocol.HoldRequest) (protocol.Held, error) {
	if w.hold == nil {
		return protocol.Held{}, nil
	}
	return w.hold(ctx, r)
}

func (w *world) Paused(context.Context, time.Time) (time.Duration, error) { return w.paused, nil }

func (w *world) Release(_ context.Context, e activities.Entry) error {
	w.called("release", e.Step)
	return nil
}

// chain makes steps of which each needs the one before.
func chain(ids ...string) []task.Step {
	var steps []task.Step
	for i, id := range ids {
		s := task.Step{
			ID: id, Uses: "fake.do", With: json.RawMessage(`{}`), Timeout: time.Minute, Heartbeat: 10 * time.Second,
			Retry: task.Retry{Attempts: 3, Backoff: time.Second, Max: time.Minute},
			Place: activities.Place{Queue: queue, Journal: "j"}, Gate: task.Gate{Mode: task.GateOpen},
			Undo: activities.UndoPolicy{Attempt: time.Minute, Within: 10 * time.Minute, Heartbeat: 10 * time.Second},
		}
		if i > 0 {
			s.Needs = []string{ids[i-1]}
		}
		steps = append(steps, s)
	}
	return steps
}

// addGate gives a step a gate.
func addGate(steps []task.Step, id string, limit time.Duration) []task.Step {
	for i := range steps {
		if steps[i].ID == id {
			steps[i].Gate = task.Gate{Mode: task.GateAsk, Limit: limit, Why: "the task file asks"}
		}
	}
	return steps
}

// run is an AgentTask in the test environment, whose clock skips idle time.
type run struct {
	*testing.T
	env   *testsuite.TestWorkflowEnvironment
	world *world
}

func newRun(t *testing.T, w *world) *run {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetStartWorkflowOptions(startOptions)
	workflows.Register(env, w.checkSteps)
	for name, fn := range map[string]any{
		protocol.CompileActivity: w.Compile, protocol.CompileStepsActivity: w.CompileSteps, protocol.HoldActivity: w.Hold,
		protocol.PreflightActivity: w.Preflight, protocol.ContextActivity: w.confirmContext, "fake.do": w.Do,
		"fake.do.plan": w.Plan, "fake.do.undo": w.Undo, "fake.do.release": w.Release,
		"fake.do.observe": w.Observe, "fake.do.commit": w.MakeDurable, protocol.AlertActivity: func(context.Context,
			[]protocol.Alert) error {
			return nil
		},
		protocol.PausedActivity: w.Paused,
	} {
		env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	env.SetTestTimeout(2 * time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // the race detector is slow
	return &run{t, env, w}
}

// state queries the running task.
func (r *run) state() protocol.State {
	v, err := r.env.QueryWorkflow(protocol.QueryState)
	require.NoError(r, err)
	var s protocol.State
	require.NoError(r, v.Get(&s))
	return s
}

// runAfter calls fn after some workflow time.
func (r *run) runAfter(after time.Duration, fn func()) { r.env.RegisterDelayedCallback(fn, after) }

// decide sends approve or reject to the open gate.
func (r *run) decide(signal string) {
	g := r.state().Gates
	require.Len(r, g, 1)
	r.env.SignalWorkflow(signal, protocol.Decision{Step: g[0].Step, Digest: g[0].Digest, Who: "ann", Why: "I looked"})
}

// report runs the task to its end and returns its report and its error.
func (r *run) report() (compensations.Report, error) {
	r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(`{"name": "release"}`))
	return r.ended()
}

// ended returns the report and the error of the task, which has ended.
func (r *run) ended() (compensations.Report, error) {
	require.True(r, r.env.IsWorkflowCompleted())
	var report compensations.Report
	err := r.env.GetWorkflowError()
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case errors.As(err, &canceled):
		require.NoError(r, canceled.Details(&report))
	case errors.As(err, &app):
		require.NoError(r, app.Details(&report))
	default:
		require.NoError(r, err)
		require.NoError(r, r.env.GetWorkflowResult(&report))
	}
	return report, err
}

func (r *run) failsAs(err error, errorType string) {
	var app *temporal.ApplicationError
	require.ErrorAs(r, err, &app)
	require.Equal(r, errorType, app.Type())
	require.True(r, app.NonRetryable())
}

func failing(step string) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
	return func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == step {
			return activities.Result{}, temporal.NewNonRetryableApplicationError("no", string(activities.CheckFailed), nil)
		}
		return activities.Result{}, nil
	}
}

func outcomes(r compensations.Report) []string {
	var all []string
	for _, s := range r.Steps {
		all = append(all, fmt.Sprintf("%s %s %s", s.Step, s.State, s.Outcome))
	}
	return all
}
