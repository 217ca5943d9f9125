package compensations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// world is a fake that answers as a test says and records every call in order.
type world struct {
	mu    sync.Mutex
	calls []string
	// undo answers the n-th undo of a step. By default it answers restored.
	undo func(step string, n int, d activities.Decision) (activities.Undone, error)
	// forward answers a step's forward. By default it succeeds.
	forward func(ctx context.Context, step string) error
	seen    map[string]int
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *world) Do(ctx context.Context, e activities.Entry) error {
	w.logf("do %s", e.Step)
	if w.forward == nil {
		return nil
	}
	return w.forward(ctx, e.Step)
}

func (w *world) Undo(_ context.Context, b activities.Backward) (activities.Undone, error) {
	w.mu.Lock()
	if w.seen == nil {
		w.seen = map[string]int{}
	}
	w.seen[b.Entry.Step]++
	n := w.seen[b.Entry.Step]
	w.mu.Unlock()
	w.logf("undo %s", b.Entry.Step)
	if w.undo == nil {
		return activities.Undone{Outcome: activities.Restored, Observed: "as before"}, nil
	}
	return w.undo(b.Entry.Step, n, b.Decision)
}

// plain describes a step.
type plain struct {
	ID    string
	Needs []string
	Drift activities.DriftPolicy

	ReadOnly bool
}

// sagaWorkflow is what a user of the library writes: it runs steps in order and unwinds at the
// first error.
func sagaWorkflow(ctx workflow.Context, steps []plain) (compensations.Report, error) {
	saga := compensations.New(ctx, compensations.Options{HostWait: time.Minute})
	calm, _ := workflow.NewDisconnectedContext(ctx)
	workflow.Go(calm, func(ctx workflow.Context) {
		for {
			var r compensations.Resolution
			workflow.GetSignalChannel(ctx, compensations.SignalResolve).Receive(ctx, &r)
			if r.Digest == "" { // the test does not know the digest, so take the shown one
				for _, s := range saga.Report().Steps {
					if s.Step == r.Step {
						r.Digest = s.Digest
					}
				}
			}
			if err := saga.Resolve(r); err != nil {
				workflow.GetLogger(ctx).Info("ignored", "error", err)
			}
		}
	})
	_ = workflow.SetQueryHandler(ctx, "report", func() (compensations.Report, error) { return saga.Report(), nil })
	options := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	for _, s := range steps {
		undo := "Undo"
		if s.ReadOnly {
			undo = ""
		}
		entry := saga.Register(ctx, compensations.Step{
			ID: s.ID, Action: "Do", Undo: undo, ReadOnly: s.ReadOnly, Needs: s.Needs,
			Place:  activities.Place{Queue: workflow.GetInfo(ctx).TaskQueueName, Host: "far"},
			Policy: activities.UndoPolicy{Within: 10 * time.Minute, Drift: s.Drift},
		})
		if err := workflow.ExecuteActivity(options, "Do", entry).Get(ctx, nil); err != nil {
			kind := compensations.Failure
			if ctx.Err() != nil {
				kind = compensations.Canceled
			}
			return saga.Unwind(ctx, compensations.Cause{Kind: kind, Step: s.ID, Text: compensations.Reason(err)}), nil
		}
	}
	return compensations.Report{Status: compensations.Committed}, nil
}

func chain(ids ...string) []plain {
	var steps []plain
	for i, id := range ids {
		s := plain{ID: id}
		if i > 0 {
			s.Needs = []string{ids[i-1]}
		}
		steps = append(steps, s)
	}
	return steps
}

type run struct {
	t     *testing.T
	env   *testsuite.TestWorkflowEnvironment
	world *world
}

func newRun(t *testing.T, w *world) *run {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(sagaWorkflow)
	env.RegisterActivityWithOptions(w.Do, activity.RegisterOptions{Name: "Do"})
	env.RegisterActivityWithOptions(w.Undo, activity.RegisterOptions{Name: "Undo"})
	env.SetTestTimeout(2 * time.Minute)
	return &run{t, env, w}
}

// resolve sends a resolution after some workflow time.
func (r *run) resolve(after time.Duration, step string, do compensations.Do) {
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: step, Do: do, Who: "eve"})
	}, after)
}

func (r *run) report(steps []plain) compensations.Report {
	r.env.ExecuteWorkflow(sagaWorkflow, steps)
	require.True(r.t, r.env.IsWorkflowCompleted())
	require.NoError(r.t, r.env.GetWorkflowError())
	var report compensations.Report
	require.NoError(r.t, r.env.GetWorkflowResult(&report))
	return report
}

func outcomes(r compensations.Report) map[string]string {
	m := map[string]string{}
	for _, s := range r.Steps {
		m[s.Step] = s.State + " " + string(s.Outcome)
	}
	return m
}

func failing(step string) func(context.Context, string) error {
	return func(_ context.Context, s string) error {
		if s == step {
			return errors.New("broken")
		}
		return nil
	}
}

var restored = activities.Undone{Outcome: activities.Restored}

func TestFailedStepAndAllBeforeItAreUndoneLastInFirstOut(t *testing.T) {
	w := &world{forward: failing("c")}
	r := newRun(t, w).report(chain("a", "b", "c", "d"))
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, map[string]int{"restored": 3}, r.Outcomes)
	require.Equal(t, "c", r.Cause.Step)
}

func TestCancelDuringAStepUndoesItToo(t *testing.T) {
	w := &world{forward: func(ctx context.Context, s string) error {
		if s != "b" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	r := newRun(t, w)
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, time.Second)
	report := r.report(chain("a", "b", "c"))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Canceled, report.Cause.Kind)
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestUndoIsRetriedFarLongerThanThreeTimes(t *testing.T) {
	w := &world{forward: failing("b"), undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "a" && n < 9 {
			return activities.Undone{}, errors.New("down")
		}
		return restored, nil
	}}
	report := newRun(t, w).report(chain("a", "b"))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 9, w.seen["a"])
}

func TestFinalErrorParksAtOnceHoldsWhatItNeedsAndLetsIndependentOnesGo(t *testing.T) {
	// c needs a; b is independent of both.
	w := &world{forward: failing("d"), undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "c" && n == 1 {
			return activities.Undone{},
				temporal.NewNonRetryableApplicationError("blob is truncated", string(activities.DamagedRecord), nil)
		}
		return restored, nil
	}}
	steps := []plain{{ID: "a"}, {ID: "b"}, {ID: "c", Needs: []string{"a"}}, {ID: "d"}}
	r := newRun(t, w)
	r.env.RegisterDelayedCallback(func() {
		require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b"}, w.calls, "a waits for c")
		v, err := r.env.QueryWorkflow("report")
		require.NoError(t, err)
		var now compensations.Report
		require.NoError(t, v.Get(&now))
		require.Equal(t,
			map[string]string{"a": "pending ", "b": "settled restored", "c": "parked failed", "d": "settled restored"},
			outcomes(now))
		require.Equal(t, "DamagedRecord: blob is truncated", now.Steps[2].Reason)
	}, time.Minute)
	r.resolve(2*time.Minute, "c", compensations.Retry)
	report := r.report(steps)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b", "undo c", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"retry by eve"}, report.Steps[2].Notes)
}

func TestAnUndoThatNeverWorksIsParkedWhenItsBudgetIsSpent(t *testing.T) {
	w := &world{forward: failing("b"), undo: func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" {
			return activities.Undone{}, errors.New("down for good")
		}
		return restored, nil
	}}
	r := newRun(t, w)
	r.resolve(time.Hour, "b", compensations.Accept)
	report := r.report(chain("a", "b"))
	require.Equal(t, map[string]string{"a": "settled restored", "b": "accepted failed"}, outcomes(report))
	require.Equal(t, compensations.Remains, report.Status)
	require.Contains(t, report.Steps[1].Reason, "down for good")
	require.Equal(t, "undo a", w.calls[len(w.calls)-1], "what an accepted step needs goes on")
}

func TestSkipLeavesItAndWhatItNeedsWaitsForAPersonToo(t *testing.T) {
	drift := activities.Undone{Outcome: activities.Drifted, Observed: "someone wrote it",
		Drift: &activities.Drift{Digest: "sha256:d1"}}
	w := &world{forward: failing("c"), undo: func(step string, _ int, d activities.Decision) (activities.Undone, error) {
		if step == "b" {
			return drift, nil
		}
		return restored, nil
	}}
	r := newRun(t, w)
	r.resolve(time.Minute, "b", compensations.Skip)
	r.env.RegisterDelayedCallback(func() {
		v, _ := r.env.QueryWorkflow("report")
		var now compensations.Report
		require.NoError(t, v.Get(&now))
		require.Equal(t, map[string]string{"a": "parked ", "b": "skipped drifted", "c": "settled restored"}, outcomes(now))
	}, 2*time.Minute)
	r.resolve(3*time.Minute, "a", compensations.Retry)
	report := r.report(chain("a", "b", "c"))
	require.Equal(t, []string{"do a", "do b", "do c", "undo c", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Remains, report.Status)
}

func TestForceCarriesTheDriftThatWasShown(t *testing.T) {
	w := &world{forward: failing("b"), undo: func(step string, n int, d activities.Decision) (activities.Undone, error) {
		if step == "b" || d.Force == "sha256:second" {
			return restored, nil
		}
		shown := activities.Digest("sha256:first")
		if n > 1 {
			shown = "sha256:second"
		}
		return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: shown}}, nil
	}}
	r := newRun(t, w)
	r.resolve(time.Minute, "a", compensations.Force)   // forces the first; by then it is the second
	r.resolve(2*time.Minute, "a", compensations.Force) // fits
	report := r.report(chain("a", "b"))
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "undo a", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
}

// TestAReportKeepsWhatAForceOverwrote: the work of somebody else may be nowhere else, also if the
// undo failed when it had overwritten it.
func TestAReportKeepsWhatAForceOverwrote(t *testing.T) {
	theirs := activities.Drift{Digest: "sha256:theirs", Diff: "+ their work"}
	for _, c := range []struct {
		policy activities.DriftPolicy
		fails  bool
	}{{activities.DriftAsk, false}, {activities.DriftAsk, true}, {activities.DriftForce, false}, {activities.DriftForce,
		true}} {
		overwritten := false
		w := &world{forward: failing("b"), undo: func(step string, _ int, d activities.Decision) (activities.Undone, error) {
			switch {
			case step == "b" || overwritten:
				return restored, nil
			case d.Force != theirs.Digest:
				return activities.Undone{Outcome: activities.Drifted, Drift: &theirs}, nil
			}
			overwritten = true
			if c.fails {
				return activities.Undone{},
					temporal.NewNonRetryableApplicationError("the disk broke", string(activities.ActionDenied), nil)
			}
			return restored, nil
		}}
		r := newRun(t, w)
		at := time.Minute
		if c.policy == activities.DriftAsk {
			r.resolve(at, "a", compensations.Force)
			at += time.Minute
		}
		if c.fails {
			r.env.RegisterDelayedCallback(func() {
				v, err := r.env.QueryWorkflow("report")
				require.NoError(t, err)
				var now compensations.Report
				require.NoError(t, v.Get(&now))
				require.Equal(t, "parked failed", outcomes(now)["a"])
				require.Equal(t, &theirs, now.Steps[0].Drift)
			}, at)
			r.resolve(at+time.Minute, "a", compensations.Retry)
		}
		report := r.report([]plain{{ID: "a", Drift: c.policy}, {ID: "b"}})
		require.Equal(t, map[string]string{"a": "settled restored", "b": "settled restored"}, outcomes(report), "%+v", c)
		require.Equal(t, compensations.Unwound, report.Status)
		require.Equal(t, &theirs, report.Steps[0].Drift, "%+v", c)
		require.Nil(t, report.Steps[1].Drift)
	}
}

func TestDriftPolicies(t *testing.T) {
	drifted := func(step string, _ int, d activities.Decision) (activities.Undone, error) {
		if step == "a" && d.Force != "sha256:d" {
			return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:d"}}, nil
		}
		return restored, nil
	}
	w := &world{forward: failing("b"), undo: drifted}
	report := newRun(t, w).report([]plain{{ID: "a", Drift: activities.DriftForce}, {ID: "b"}})
	require.Equal(t, []string{"do a", "do b", "undo b", "undo a", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)

	w = &world{forward: failing("b"), undo: drifted}
	report = newRun(t, w).report([]plain{{ID: "a", Drift: activities.DriftSkip}, {ID: "b"}})
	require.Equal(t, map[string]string{"a": "skipped drifted", "b": "settled restored"}, outcomes(report))
	require.Equal(t, compensations.Remains, report.Status)
}

func TestResidueAndIrreversibleSettleAndAreReportedUnknownParks(t *testing.T) {
	w := &world{forward: failing("d"), undo: func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		return activities.Undone{Outcome: map[string]activities.Outcome{
			"a": activities.Residue, "b": activities.Final, "c": activities.Unknown, "d": activities.Nothing,
		}[step]}, nil
	}}
	r := newRun(t, w)
	r.resolve(time.Minute, "c", compensations.Accept)
	report := r.report(chain("a", "b", "c", "d"))
	require.Equal(t, map[string]string{
		"a": "settled residue", "b": "settled irreversible", "c": "accepted unknown", "d": "settled nothing-to-undo",
	}, outcomes(report))
	require.Equal(t, compensations.Remains, report.Status)
}

func TestAResidueThatAnEarlierUndoHealedIsToldAsHealed(t *testing.T) {
	w := &world{undo: func(s string, _ int, _ activities.Decision) (activities.Undone, error) {
		switch s {
		case "a":
			return activities.Undone{Outcome: activities.Compensated,
				Heals: []string{activities.NewToken("chain", "b", 1), activities.NewToken("chain", "c", 1)}}, nil
		case "c":
			return restored, nil
		}
		return activities.Undone{Outcome: activities.Residue, Observed: "it does not run", Losses: []string{"its log"}}, nil
	}}
	s := &script{world: w,
		steps: []plain{{ID: "other"}, {ID: "a"}, {ID: "b", Needs: []string{"a"}}, {ID: "c", Needs: []string{"b"}}}}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		part := saga.UnwindSteps(ctx, cause, named("a"))
		require.Equal(t, compensations.Unwound, part.Status)
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t,
		[]string{"a settled compensated", "b settled compensated", "c settled restored", "other settled residue"},
		rows(report.Steps))
	require.Equal(t, "healed by the undo of step a; until then: it does not run", report.Steps[1].Observed)
	require.Empty(t, report.Steps[1].Losses)
	require.Equal(t, map[string]int{"restored": 1, "compensated": 2, "residue": 1}, report.Outcomes)
	require.Equal(t, compensations.Remains, report.Status)
}

func TestAStoppingWorkerAndAnOpenBreakerParkNothing(t *testing.T) {
	w := &world{forward: failing("b"), undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "a" && n <= 2:
			return activities.Undone{}, temporal.NewNonRetryableApplicationError("stopping", string(activities.WorkerStopping),
				nil)
		case step == "a" && n == 3:
			return activities.Undone{}, temporal.NewNonRetryableApplicationError("open", string(activities.BreakerOpen), nil)
		}
		return restored, nil
	}}
	report := newRun(t, w).report(chain("a", "b"))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 4, w.seen["a"])
}

func TestTheLedgerIsData(t *testing.T) {
	var l compensations.Ledger
	a, fresh := l.Push(activities.Entry{Step: "a", Token: "1"})
	require.True(t, fresh)
	_, fresh = l.Push(activities.Entry{Step: "a", Token: "1"})
	require.False(t, fresh, "a token registers once")
	l.Push(activities.Entry{Step: "b", Token: "2"})
	require.Equal(t, 1, a.Seq)

	raw, err := json.Marshal(l.Entries())
	require.NoError(t, err)
	var read []activities.Entry
	require.NoError(t, json.Unmarshal(raw, &read))
	var other compensations.Ledger
	other.Push(activities.Entry{Step: "a", Token: "1"})
	other.Adopt(read)
	require.Equal(t, l.Entries(), other.Entries(), "a union, in the order of starting")
}

func TestAReadOnlyStepKeepsTheOrderAroundIt(t *testing.T) {
	p := newRun(t,
		&world{forward: failing("c"), undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
			if step == "c" && n == 1 {
				return activities.Undone{Outcome: activities.Unknown}, nil
			}
			return restored, nil
		}})
	p.resolve(time.Minute, "c", compensations.Retry)
	report := p.report([]plain{{ID: "a"}, {ID: "look", Needs: []string{"a"}, ReadOnly: true},
		{ID: "c", Needs: []string{"look"}}})
	require.Equal(t, []string{"do a", "do look", "do c", "undo c", "undo c", "undo a"}, p.world.calls,
		"a waits for c, through the step between")
	require.Equal(t, "settled nothing-to-undo", outcomes(report)["look"])
}

func TestAForcePolicyGivesUpOnEverChangingDrift(t *testing.T) {
	w := &world{forward: failing("a"), undo: func(_ string, n int, _ activities.Decision) (activities.Undone, error) {
		return activities.Undone{Outcome: activities.Drifted,
			Drift: &activities.Drift{Digest: activities.Digest(fmt.Sprint("sha256:", n))}}, nil
	}}
	r := newRun(t, w)
	r.resolve(time.Hour, "a", compensations.Accept)
	report := r.report([]plain{{ID: "a", Drift: activities.DriftForce}})
	require.Equal(t, 6, w.seen["a"])
	require.Equal(t, []string{"accept by eve"}, report.Steps[0].Notes, "what was not overwritten is not said to be")
}

// cutOff is the undo of a world in which the breaker of a step's dependency is open for so many calls.
func cutOff(by string, calls int) func(string, int, activities.Decision) (activities.Undone, error) {
	return func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == by && n <= calls {
			return activities.Undone{}, temporal.NewNonRetryableApplicationError("open", string(activities.BreakerOpen), nil)
		}
		return restored, nil
	}
}

// An open breaker is no answer of the world: the undo waits beyond its budget, holds back only what it
// needs, and goes on by itself.
func TestAnOpenBreakerIsWaitedForBeyondTheBudget(t *testing.T) {
	w := &world{forward: failing("d"), undo: cutOff("c", 40)}
	r := newRun(t, w)
	r.env.RegisterDelayedCallback(func() {
		v, err := r.env.QueryWorkflow("report")
		require.NoError(t, err)
		var now compensations.Report
		require.NoError(t, v.Get(&now))
		require.Equal(t, "waiting for the circuit breaker of Do", now.Steps[2].Reason)
		require.Equal(t,
			map[string]string{"a": "pending ", "b": "settled restored", "c": "waiting ", "d": "settled restored"},
			outcomes(now))
	}, 5*time.Hour)
	report := r.report([]plain{{ID: "a"}, {ID: "b"}, {ID: "c", Needs: []string{"a"}}, {ID: "d"}})
	require.Equal(t, slices.Concat([]string{"do a", "do b", "do c", "do d", "undo d", "undo c", "undo b"},
		slices.Repeat([]string{"undo c"}, 40), []string{"undo a"}), w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, report.Steps[2].Reason)
}

func TestAPersonMayEndTheWaitForABreaker(t *testing.T) {
	w := &world{forward: failing("b"), undo: cutOff("b", 1000)}
	r := newRun(t, w)
	r.resolve(time.Hour, "b", compensations.Retry) // refused: it goes on by itself
	r.resolve(2*time.Hour, "b", compensations.Accept)
	report := r.report(chain("a", "b"))
	require.Equal(t, map[string]string{"a": "settled restored", "b": "accepted failed"}, outcomes(report))
	require.Equal(t, []string{"accept by eve"}, report.Steps[1].Notes)
	require.Less(t, w.seen["b"], 25, "the pauses grow")
}

func TestAnUndoThatFailsForMinutesSaysWhyAndIsTriedOn(t *testing.T) {
	mended := false
	w := &world{forward: failing("a"), undo: func(string, int, activities.Decision) (activities.Undone, error) {
		if mended {
			return restored, nil
		}
		return activities.Undone{}, errors.New("the disk is full")
	}}
	r := newRun(t, w)
	shown := func() (u compensations.StepReport) {
		v, err := r.env.QueryWorkflow("report")
		require.NoError(t, err)
		var report compensations.Report
		require.NoError(t, v.Get(&report))
		return report.Steps[0]
	}
	r.env.RegisterDelayedCallback(func() { require.Empty(t, shown().Reason) }, time.Minute)
	r.env.RegisterDelayedCallback(func() {
		require.Equal(t, string(compensations.Running), shown().State)
		require.Equal(t, "the disk is full", shown().Reason)
		mended = true
	}, 5*time.Minute)
	report := r.report([]plain{{ID: "a"}})
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, report.Steps[0].Reason)
}

func TestAnUndoWhoseHostIsGoneWaitsAloneAndAPersonMayEndThat(t *testing.T) {
	w := &world{forward: failing("d")}
	r := newRun(t, w)
	// In the test environment every queue is served, so the world returns what a server would, and
	// then waits as one would.
	again, decided := make(chan struct{}), make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "c" && n == 1 {
			return activities.Undone{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		if step == "c" {
			close(again)
			<-decided
		}
		return restored, nil
	}
	var look func()
	look = func() {
		select {
		case <-again:
		default: // an activity takes as long as the machine does
			r.env.RegisterDelayedCallback(look, 10*time.Millisecond)
			return
		}
		v, _ := r.env.QueryWorkflow("report")
		var now compensations.Report
		require.NoError(t, v.Get(&now))
		require.Equal(t, "waiting for host far", now.Steps[2].Reason)
		require.Equal(t, map[string]string{"a": "pending ", "b": "pending ", "c": "waiting ", "d": "settled restored"},
			outcomes(now))
		r.resolve(10*time.Millisecond, "c", compensations.Retry) // refused: it goes on by itself
		r.resolve(20*time.Millisecond, "c", compensations.Skip)
		r.env.RegisterDelayedCallback(func() { close(decided) }, 30*time.Millisecond)
	}
	r.env.RegisterDelayedCallback(look, 10*time.Millisecond)
	report := r.report([]plain{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}})
	require.Equal(t, "skipped failed", outcomes(report)["c"])
	require.Equal(t, 3, report.Outcomes["restored"])
}

func TestAReportFitsIntoAPayload(t *testing.T) {
	r := compensations.Report{Status: compensations.Remains}
	for i := range 100 {
		r.Steps = append(r.Steps, compensations.StepReport{
			Step: fmt.Sprint(i), Observed: strings.Repeat("o", 500), Drift: &activities.Drift{Diff: strings.Repeat("d", 5000)},
		})
	}
	small := r
	small.Fit(1 << 20)
	require.Equal(t, r, small, "what fits is left alone")
	r.Fit(60_000)
	require.Len(t, r.Steps, 100)
	require.Nil(t, r.Steps[0].Drift)
	require.Len(t, r.Steps[0].Observed, 500)
	r.Fit(5_000)
	require.NotEmpty(t, r.Steps)
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	require.Less(t, len(raw), 5_000)
	require.Contains(t, r.Notes[len(r.Notes)-1], "left out, for they are too many")
}

func TestALongReportDropsCleanStepsFirstAndBoundsNotes(t *testing.T) {
	r := compensations.Report{Status: compensations.Remains,
		Notes: slices.Repeat([]string{strings.Repeat("n", 2000)}, 1000)}
	for i := range 100 {
		s := compensations.StepReport{Step: fmt.Sprint(i), State: string(compensations.Settled), Outcome: activities.Restored}
		if i == 99 {
			s.Outcome = activities.Residue
		}
		r.Steps = append(r.Steps, s)
	}
	r.Fit(105_000)
	require.Len(t, r.Notes, 105, "100, and what was left out: notes, diffs, notes and texts of steps, steps")
	require.Contains(t, r.Notes, "and 900 more notes")
	require.Equal(t, []string{"99 settled residue"}, rows(r.Steps))
}

// However many undos wait for a breaker, no more go on at once than may run at once.
func TestUndosBehindABreakerGoOnNoMoreAtOnceThanMayRun(t *testing.T) {
	meet := make(chan string)
	w := &world{forward: failing("d"), undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if n <= 3 {
			return activities.Undone{}, temporal.NewNonRetryableApplicationError("open", string(activities.BreakerOpen), nil)
		}
		select {
		case other := <-meet:
			t.Errorf("the undos of %s and %s run at once", other, step)
		case meet <- step:
		case <-time.After(20 * time.Millisecond): // nobody else is there
		}
		return restored, nil
	}}
	report := newRun(t, w).report([]plain{{ID: "a"}, {ID: "b"}, {ID: "c"}, {ID: "d"}})
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"a": 4, "b": 4, "c": 4, "d": 4}, w.seen)
}
