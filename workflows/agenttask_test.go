package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var startOptions = client.StartWorkflowOptions{ID: "task-1", TaskQueue: queue}

func TestATaskWhoseStepsAreAllDoneCommits(t *testing.T) {
	r := newRun(t, &world{steps: chain("a", "b", "c")})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c"}, r.world.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"a done ", "b done ", "c done "}, outcomes(report))
	require.Equal(t, "did b", report.Steps[1].Summary)
}

func TestADocumentThatIsRefusedTouchesNothing(t *testing.T) {
	w := &world{refuse: temporal.NewNonRetryableApplicationError("task:3:1: steps[0].uses: no such action",
		string(activities.Refused), nil)}
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.ErrorContains(t, err, "nothing was touched: Refused: task:3:1")
	require.Empty(t, w.calls)
	require.Empty(t, report.Steps)
}

// Every ending combined with every answer of the undo; each asserts the whole order of calls.
func TestEveryEndingAtEveryStepUnwinds(t *testing.T) {
	ids := []string{"a", "b", "c"}
	type ending struct {
		name string
		kind compensations.CauseKind
		set  func(r *run, at string)
	}
	// The test environment does not cancel activities: one that is canceled or too late ends when then
	// has returned, and its result is dropped.
	in := func(at string, then func()) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		return func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
			if s == at {
				then()
			}
			return activities.Result{}, nil
		}
	}
	endings := []ending{
		{"fails", compensations.Failure, func(r *run, at string) { r.world.do = failing(at) }},
		{"acts but reports an error", compensations.Failure, func(r *run, at string) {
			r.world.do = func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
				if s == at {
					return activities.Result{Summary: "acted"},
						temporal.NewNonRetryableApplicationError("lost", string(activities.UnknownOutcome), nil)
				}
				return activities.Result{}, nil
			}
		}},
		{"is canceled", compensations.Canceled, func(r *run, at string) {
			r.world.do = in(at, r.env.CancelWorkflow)
			r.runAfter(5*time.Minute, r.env.CancelWorkflow)
		}},
		{"passes its deadline", compensations.Deadline, func(r *run, at string) {
			passed := make(chan struct{})
			r.world.do = in(at, func() { <-passed })
			r.world.deadline = time.Second // real time, because a step is running
			r.runAfter(1100*time.Millisecond, func() { close(passed) })
		}},
	}
	undos := map[string]func(step string, n int, d activities.Decision) (activities.Undone, error){
		"restored": nil,
		"fails twice, then restored": func(_ string, n int, _ activities.Decision) (activities.Undone, error) {
			if n < 3 {
				return activities.Undone{}, errors.New("down")
			}
			return activities.Undone{Outcome: activities.Restored}, nil
		},
		"drifted, then forced": func(_ string, _ int, d activities.Decision) (activities.Undone, error) {
			if d.Force == "sha256:drift" {
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:drift"}}, nil
		},
	}
	for _, e := range endings {
		for last, at := range ids {
			for name, undo := range undos {
				t.Run(fmt.Sprintf("%s at %s, undo %s", e.name, at, name), func(t *testing.T) {
					r := newRun(t, &world{steps: chain(ids...), undo: undo})
					e.set(r, at)
					times := 1
					switch name {
					case "fails twice, then restored":
						times = 3
					case "drifted, then forced":
						times = 2
						for i := range 3 {
							r.runAfter(time.Duration(10+i)*time.Minute, func() { r.resolveParked(compensations.Force) })
						}
					}
					report, err := r.report()
					require.Error(t, err)

					var want []string
					for _, id := range ids[:last+1] {
						want = append(want, "do "+id)
					}
					if e.name == "acts but reports an error" {
						want = append(want, "observe "+at)
					}
					for i := last; i >= 0; i-- {
						want = append(want, slices.Repeat([]string{"undo " + ids[i]}, times)...)
					}
					require.Equal(t, want, r.world.calls)
					require.Equal(t, e.kind, report.Cause.Kind)
					require.Equal(t, compensations.Unwound, report.Status)
					require.Equal(t, last+1, report.Outcomes["restored"])
					require.Equal(t, e.kind == compensations.Canceled, temporal.IsCanceledError(err))
				})
			}
		}
	}
}

// resolveParked resolves whatever is parked.
func (r *run) resolveParked(do compensations.Do) {
	s := r.state()
	if s.Report == nil {
		return
	}
	for _, step := range s.Report.Steps {
		if step.State == string(compensations.Parked) {
			r.env.SignalWorkflow(compensations.SignalResolve,
				compensations.Resolution{Step: step.Step, Digest: step.Digest, Do: do, Who: "eve"})
		}
	}
}

func TestATransientErrorUnwindsNothing(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "b" && n < 3 {
			return activities.Result{}, errors.New("connection lost")
		}
		return activities.Result{}, nil
	}
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do b", "do b"}, w.calls)
}

func TestAStoppingWorkerAndAnOpenBreakerCostNoAttempt(t *testing.T) {
	w := &world{steps: chain("a")}
	w.steps[0].Retry.Attempts = 1
	w.do = func(_ context.Context, _ string, n int, _ activities.Forward) (activities.Result, error) {
		switch n {
		case 1, 2:
			return activities.Result{}, temporal.NewNonRetryableApplicationError("stopping", string(activities.WorkerStopping),
				nil)
		case 3:
			return activities.Result{}, temporal.NewApplicationErrorWithOptions("open", string(activities.BreakerOpen),
				temporal.ApplicationErrorOptions{NonRetryable: true, NextRetryDelay: time.Minute})
		}
		return activities.Result{}, nil
	}
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, 4, w.count["do a"])
}

func TestStepsRunWhenTheirNeedsAreDone(t *testing.T) {
	// a and b are independent; c needs both; d needs only b; e, which fails, needs c and d.
	steps := chain("a", "b", "c", "d", "e")
	steps[1].Needs, steps[2].Needs, steps[3].Needs, steps[4].Needs = nil, []string{"a", "b"}, []string{"b"}, []string{"c",
		"d"}
	w := &world{steps: steps, do: failing("e")}
	report, err := newRun(t, w).report()
	require.Error(t, err)
	index := func(call string) int { return slices.Index(w.calls, call) }
	require.Less(t, max(index("do a"), index("do b")), index("do c"))
	require.Less(t, index("do b"), index("do d"))
	require.Less(t, index("undo e"), min(index("undo c"), index("undo d")))
	require.Less(t, max(index("undo c"), index("undo d")), index("undo b"))
	require.Less(t, index("undo c"), index("undo a"))
	require.Equal(t, 5, report.Outcomes["restored"])
}

func TestTheForwardCarriesItsEntryAndOutputsReachLaterSteps(t *testing.T) {
	steps := chain("a", "b")
	steps[1].With = []byte(`{"from": "${{ steps.a.outputs.id }}", "bulk": "much"}`)
	steps[1].UndoParams, steps[1].Digested = []string{"from", "bulk"}, []string{"bulk"}
	w := &world{steps: steps}
	var got activities.Forward
	w.do = func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		got = f
		return activities.Result{Outputs: map[string]any{"id": "cus_1"}}, nil
	}
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.JSONEq(t, `{"from": "cus_1", "bulk": "much"}`, string(got.Step.With))
	require.Contains(t, string(got.Entry.Params), `"from":"cus_1"`)
	require.NotContains(t, string(got.Entry.Params), "much")
	require.Equal(t, 2, got.Entry.Seq)
	require.Equal(t, []string{"a"}, got.Entry.Needs)
	require.Equal(t, "fake.do.undo", got.Entry.UndoType)
	require.NotEmpty(t, got.OriginalRunID)
}

func TestAReadOnlyStepHasNoUndo(t *testing.T) {
	steps := chain("a", "look", "b")
	steps[1].ReadOnly = true
	w := &world{steps: steps, do: failing("b")}
	report, _ := newRun(t, w).report()
	require.Equal(t, []string{"do a", "do look", "do b", "undo b", "undo a"}, w.calls)
	require.Equal(t, "look settled nothing-to-undo", outcomes(report)[1])
}

func TestAnotherHostIsAskedForItsJournals(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nobody serves it": {
			temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil),
			`no worker serves host "far" (queue unwind@far) within 1m0s; start one there, or name another host`,
		},
		"canceled meanwhile": {temporal.NewCanceledError(), `no worker has served host "far" (queue unwind@far) so far`},
		"it fails": {
			temporal.NewNonRetryableApplicationError("down", "Refused", nil),
			`host "far" (queue unwind@far) does not say what it serves: Refused: down`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{steps: chain("a")}
			w.steps[0].Place = activities.Place{Queue: "unwind@far", Host: "far"}
			r := newRun(t, w)
			r.env.RegisterActivityWithOptions(func(context.Context) (protocol.Places, error) { return protocol.Places{}, c.err },
				activity.RegisterOptions{Name: protocol.PlacesActivity})
			report, err := r.report()
			require.Error(t, err)
			require.Equal(t, "nothing was touched: Refused: steps.a.on: "+c.want, report.Cause.Text)
			require.Empty(t, w.calls)
		})
	}
}

func TestPlanTaskPlansEachStepAndReleasesIt(t *testing.T) {
	steps := chain("a", "b", "c")
	steps[1].With = []byte(`{"from": "${{ steps.a.outputs.id }}"}`)
	addGate(steps, "c", time.Hour)
	w := &world{steps: steps}
	r := newRun(t, w)
	r.env.ExecuteWorkflow(protocol.PlanTaskType, []byte(`{}`))
	require.NoError(t, r.env.GetWorkflowError())
	var plan protocol.Plan
	require.NoError(t, r.env.GetWorkflowResult(&plan))
	require.Equal(t, []string{"plan a", "plan c", "release a", "release c"}, sortTail(w.calls, 2))
	require.NotNil(t, plan.Steps[0].Change)
	require.Nil(t, plan.Steps[1].Change)
	require.Contains(t, plan.Steps[1].Unknown, "steps.a")
	require.Equal(t, "the task file asks", plan.Steps[2].Asks)
}

// sortTail sorts all but the first n calls, which are concurrent.
func sortTail(calls []string, n int) []string {
	tail := slices.Clone(calls)
	slices.Sort(tail[n:])
	return tail
}
