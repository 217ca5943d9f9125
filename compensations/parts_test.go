package compensations_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// script is a workflow that registers steps and then runs the test's code on its saga. Every park
// is resolved a minute later, as decide says; alerts are recorded.
type script struct {
	options compensations.Options
	steps   []plain
	then    func(ctx workflow.Context, saga *compensations.Saga) compensations.Report
	decide  map[string]compensations.Do
	from    *compensations.Carry

	world  *world
	alerts []string
	looks  []activities.Decision // the decisions passed to the undos
}

func (s *script) flow(ctx workflow.Context) (compensations.Report, error) {
	var saga *compensations.Saga
	s.options.Alert = func(ctx workflow.Context, undos []compensations.StepReport) {
		for _, r := range undos {
			s.alerts = append(s.alerts, r.Step+" "+r.State)
		}
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return
		}
		for _, r := range undos {
			if do, known := s.decide[r.Step]; known {
				_ = saga.Resolve(compensations.Resolution{Step: r.Step, Digest: r.Digest, Do: do, Who: "eve"})
			}
		}
	}
	s.options.Identity = "chain"
	if s.from != nil {
		saga = compensations.Resume(ctx, s.options, *s.from)
	} else {
		saga = compensations.New(ctx, s.options)
	}
	for _, p := range s.steps {
		undo := "Undo"
		if p.ReadOnly {
			undo = ""
		}
		saga.Register(ctx, compensations.Step{
			ID: p.ID, Action: "Do", Undo: undo, Needs: p.Needs,
			Place:  activities.Place{Queue: workflow.GetInfo(ctx).TaskQueueName},
			Policy: activities.UndoPolicy{Within: 10 * time.Minute, Drift: p.Drift},
		})
	}
	return s.then(ctx, saga), nil
}

// registerUndo registers the undo of the fake world.
func registerUndo(env *testsuite.TestWorkflowEnvironment, w *world) {
	env.RegisterActivityWithOptions(w.Undo, activity.RegisterOptions{Name: "Undo"})
}

func (s *script) run(t *testing.T) compensations.Report {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflow(s.flow)
	env.RegisterActivityWithOptions(func(ctx context.Context, b activities.Backward) (activities.Undone, error) {
		s.world.mu.Lock()
		s.looks = append(s.looks, b.Decision)
		s.world.mu.Unlock()
		return s.world.Undo(ctx, b)
	}, activity.RegisterOptions{Name: "Undo"})
	env.SetTestTimeout(2 * time.Minute)
	env.ExecuteWorkflow(s.flow)
	require.NoError(t, env.GetWorkflowError())
	var report compensations.Report
	require.NoError(t, env.GetWorkflowResult(&report))
	return report
}

var cause = compensations.Cause{Kind: compensations.Failure, Text: "broken"}

func named(ids ...string) func(activities.Entry) bool {
	return func(e activities.Entry) bool { return slices.Contains(ids, e.Step) }
}

// parkFirstUndo makes the first undo of each of these steps end with an unknown outcome.
func parkFirstUndo(steps ...string) func(string, int, activities.Decision) (activities.Undone, error) {
	return func(s string, n int, _ activities.Decision) (activities.Undone, error) {
		if n == 1 && slices.Contains(steps, s) {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return restored, nil
	}
}

func rows(reports []compensations.StepReport) []string {
	var all []string
	for _, r := range reports {
		all = append(all, fmt.Sprintf("%s %s %s", r.Step, r.State, r.Outcome))
	}
	return all
}

func TestAPartIsUndoneWithWhatBuildsOnItAndTheRestLater(t *testing.T) {
	s := &script{world: &world{},
		steps: []plain{{ID: "a"}, {ID: "b", Needs: []string{"a"}}, {ID: "c"}, {ID: "d", Needs: []string{"b"}}}}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		part := saga.UnwindSteps(ctx, cause, named("b"))
		require.Equal(t, []string{"b settled restored", "d settled restored"}, rows(part.Steps))
		require.False(t, saga.Unwinding())
		require.Len(t, saga.Entries(), 2)
		e := saga.Register(ctx, compensations.Step{ID: "e", Action: "Do", Undo: "Undo"})
		require.Equal(t, 5, e.Seq, "a place is given once")
		again := saga.Register(ctx, compensations.Step{ID: "b", Action: "Do", Undo: "Undo", Generation: 2})
		require.Equal(t, 6, again.Seq)
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo d", "undo b", "undo b", "undo e", "undo c", "undo a"}, s.world.calls)
	require.Equal(t, []string{
		"b settled restored", "d settled restored", "a settled restored", "c settled restored", "e settled restored",
		"b settled restored",
	}, rows(report.Steps))
	require.Equal(t, map[string]int{"restored": 6}, report.Outcomes)
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestWhatIsSkippedInAPartStaysOnTheLedgerThroughOtherParts(t *testing.T) {
	s := &script{world: &world{undo: parkFirstUndo("b")}, steps: []plain{{ID: "a"}, {ID: "b"}, {ID: "c"}},
		decide: map[string]compensations.Do{"b": compensations.Skip}}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		require.Equal(t, []string{"b skipped unknown"}, rows(saga.UnwindSteps(ctx, cause, named("b")).Steps))
		require.Equal(t, []string{"c settled restored"}, rows(saga.UnwindSteps(ctx, cause, named("c")).Steps))
		require.Equal(t, []string{"b skipped unknown"}, rows(saga.Skipped()))
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo b", "undo c", "undo a"}, s.world.calls, "b is left as a person said")
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{"c settled restored", "a settled restored", "b skipped unknown"}, rows(report.Steps))
}

func TestCommittedEntriesAreNotUndone(t *testing.T) {
	s := &script{world: &world{}, steps: chain("a", "b", "c")}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		saga.CommitEntries(func(e activities.Entry) bool { return e.Seq <= 2 })
		pending, _ := saga.Pending()
		require.Equal(t, 1, pending)
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo c"}, s.world.calls)
	require.Equal(t, []string{"c settled restored"}, rows(report.Steps))
}

func TestParallelUndoesIndependentOnesAtOnce(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	w := &world{undo: func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" || step == "c" {
			both.Done()
			both.Wait() // one alone would wait for ever
		}
		return restored, nil
	}}
	s := &script{world: w, options: compensations.Options{Parallel: 2}, steps: []plain{
		{ID: "a"}, {ID: "b", Needs: []string{"a"}}, {ID: "c", Needs: []string{"a"}}, {ID: "d", Needs: []string{"b", "c"}},
	}}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, "undo d", w.calls[0])
	require.ElementsMatch(t, []string{"undo b", "undo c"}, w.calls[1:3])
	require.Equal(t, "undo a", w.calls[3])
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestEachParkIsAlertedOnce(t *testing.T) {
	s := &script{world: &world{undo: parkFirstUndo("c")}, steps: chain("a", "b", "c"), decide: map[string]compensations.Do{
		"c": compensations.Skip, "b": compensations.Retry,
	}}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo c", "undo b", "undo a"}, s.world.calls)
	require.Equal(t, []string{"c parked", "b parked"}, s.alerts, "b as well: what builds on it was skipped")
	require.Equal(t, compensations.Remains, report.Status)
}

func TestAParkBehindASkippingDriftPolicyIsAlerted(t *testing.T) {
	s := &script{
		steps:  []plain{{ID: "a"}, {ID: "b", Needs: []string{"a"}, Drift: activities.DriftSkip}},
		decide: map[string]compensations.Do{"a": compensations.Accept},
		world: &world{undo: func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
			return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:d"}}, nil
		}},
	}
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo b"}, s.world.calls)
	require.Equal(t, []string{"a parked"}, s.alerts)
	require.Equal(t, []string{"a accepted failed", "b skipped drifted"}, rows(report.Steps))
}

func TestUncertainUndosAreRecheckedAndRedoableReachesEveryUndo(t *testing.T) {
	s := &script{options: compensations.Options{Redoable: true}, steps: chain("a", "b", "c")}
	s.world = &world{undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			return activities.Undone{},
				temporal.NewNonRetryableApplicationError("damaged", string(activities.DamagedRecord), nil)
		}
		return activities.Undone{Outcome: activities.Nothing,
			LookAgain: map[string]time.Duration{"a": time.Hour, "c": time.Minute}[step]}, nil
	}}
	s.decide = map[string]compensations.Do{"b": compensations.Retry}
	var again []compensations.Recheck
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		saga.UnwindSteps(ctx, cause, named("c"))
		require.Len(t, saga.Rechecks(), 1)
		r := saga.Unwind(ctx, cause)
		again = saga.Rechecks()
		return r
	}
	s.run(t)
	require.Equal(t, []string{"undo c", "undo b", "undo b", "undo a"}, s.world.calls)
	require.Len(t, again, 2)
	require.Equal(t, "c", again[0].Entry.Step)
	require.Equal(t, time.Minute, again[0].After)
	require.Equal(t, "a", again[1].Entry.Step)
	require.Equal(t, time.Hour, again[1].After)
	require.Equal(t,
		[]activities.Decision{{Redoable: true}, {Redoable: true}, {Redoable: true, Who: "eve"}, {Redoable: true}}, s.looks)
}

func TestAStepWithoutAnUndoOrWithATakenIDPanics(t *testing.T) {
	for name, steps := range map[string][]compensations.Step{
		`step "a" must have an Undo or be ReadOnly`: {{ID: "a", Action: "Do"}},
		`step "b" must have an Undo or be ReadOnly`: {{ID: "b", Action: "Do", Undo: "Undo", ReadOnly: true}},
		`step "c" is registered already`: {{ID: "c", Action: "Do", Undo: "Undo"},
			{ID: "c", Action: "Do", Undo: "Other"}},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			saga := compensations.New(ctx, compensations.Options{})
			for _, step := range steps {
				saga.Register(ctx, step)
			}
			return nil
		})
		require.ErrorContains(t, env.GetWorkflowError(), name)
	}
}

// A worker that takes only signed decisions has refused what the drift policy says: a person can sign at
// once for the drift that is shown, and the policy forces nothing more.
func TestWhatAWorkerWantsSignedIsShownAgain(t *testing.T) {
	drifted := activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:theirs"}}
	for do, forced := range map[compensations.Do][]activities.Digest{
		compensations.Force: {"", "sha256:theirs", "sha256:theirs"},
		compensations.Retry: {"", "sha256:theirs", "", ""},
	} {
		s := &script{steps: []plain{{ID: "a", Drift: activities.DriftForce}}, decide: map[string]compensations.Do{"a": do}}
		s.world = &world{undo: func(_ string, n int, _ activities.Decision) (activities.Undone, error) {
			switch {
			case n == len(forced):
				return restored, nil
			case n == 2:
				return activities.Undone{}, temporal.NewNonRetryableApplicationError("not signed", string(activities.Unproved), nil)
			}
			return drifted, nil
		}}
		s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
			return saga.Unwind(ctx, cause)
		}
		require.Equal(t, compensations.Unwound, s.run(t).Status)
		var sent []activities.Digest
		for _, d := range s.looks {
			sent = append(sent, d.Force)
		}
		require.Equal(t, forced, sent, do)
	}
}
