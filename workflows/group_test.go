package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// groupOf is a world with a task that has a group of four targets, two steps each, between two
// steps. more are fields of the group.
func groupOf(t *testing.T, more string) *world {
	w := &world{}
	doc, err := task.Parse("task", fmt.Appendf(nil, `{"name": "t", "steps": [{"id": "before", "uses": "fake.do"},
		{"id": "g", "for_each": ["a", "b", "c", "d"], "batch": 2, %s
			"steps": [{"id": "one", "uses": "fake.do"}, {"id": "two", "uses": "fake.do"}]},
		{"id": "after", "uses": "fake.do"}]}`, more))
	require.NoError(t, err)
	compiled, err := w.compileParsed(doc)
	require.NoError(t, err)
	w.steps = compiled.Steps
	return w
}

func TestTheCanaryGoesFirstAndThenOneBatchAfterTheOther(t *testing.T) {
	w := groupOf(t, "")
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"do before", "do g-a-one", "do g-a-two", "do g-b-one", "do g-b-two", "do g-c-one",
		"do g-c-two", "do g-d-one", "do g-d-two", "do after"}, sortRange(w.calls, 3, 7))
	for _, target := range []string{"b", "c"} {
		require.Less(t, slices.Index(w.calls, "do g-"+target+"-one"), slices.Index(w.calls, "do g-"+target+"-two"))
	}
}

func TestACanaryThatFailsIsUndoneAsAWholeAndNoOtherTargetIsTouched(t *testing.T) {
	w := groupOf(t, `"on_failure": "rollback_target",`)
	w.do = failing("g-a-two")
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do before", "do g-a-one", "do g-a-two", "undo g-a-two", "undo g-a-one"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"before done ", "g-a-one settled restored", "g-a-two settled restored", "g-b-one left-out ",
		"g-b-two left-out ", "g-c-one left-out ", "g-c-two left-out ", "g-d-one left-out ", "g-d-two left-out ",
		"after left-out "}, outcomes(report))
	require.Equal(t, []string{"rolled back, as its on_failure says: CheckFailed: no"}, notesOf(report, "g-a-two"))
	require.Equal(t, []string{"CheckFailed: no"}, notesOf(report, "g-a-one"))
}

func TestACanaryThatFailsUnwindsTheTaskByDefault(t *testing.T) {
	w := groupOf(t, "")
	w.do = failing("g-c-two")
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, compensations.Unwound, report.Status)
	require.NotContains(t, w.calls, "do g-d-one")
	for _, s := range []string{"before", "g-a-one", "g-a-two", "g-b-one", "g-c-one", "g-c-two"} {
		require.Contains(t, w.calls, "undo "+s)
	}
}

// The others of its batch go on, also while one of them waits at a gate.
func TestATargetThatFailsLeavesTheOthersOfItsBatch(t *testing.T) {
	w := groupOf(t, `"on_failure": "rollback_target",`)
	addGate(w.steps, "g-b-two", time.Hour)
	finishLate(w.steps, "g-c-two")
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "g-c-two" && n == 1 {
			return activities.Result{}, errAgain
		}
		return activities.Result{}, map[bool]error{true: errNo}[s == "g-c-two"]
	}
	r := newRun(t, w)
	r.runAfter(30*time.Minute, func() { r.decide(protocol.SignalApprove) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"undo g-c-two", "undo g-c-one", "do g-b-two"}, w.calls[len(w.calls)-3:])
	require.Equal(t, []string{"before done ", "g-a-one done ", "g-a-two done ", "g-b-one done ", "g-b-two done ",
		"g-c-one settled restored", "g-c-two settled restored", "g-d-one left-out ", "g-d-two left-out ", "after left-out "},
		outcomes(report))
}

// failLate has a step fail in its second attempt, a minute after the first.
func failLate(w *world, step string) {
	finishLate(w.steps, step)
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == step {
			return activities.Result{}, map[bool]error{true: errAgain, false: errNo}[n == 1]
		}
		return activities.Result{}, nil
	}
}

// What builds on a step of the target goes with it, even from a gate.
func TestWhatBuildsOnATargetIsUndoneWithIt(t *testing.T) {
	w := groupOf(t, `"on_failure": "rollback_target", "needs": [],`)
	user := *stepByID(w.steps, "after")
	user.ID, user.Needs = "user", []string{"g-a-one"}
	w.steps = addGate(append(w.steps, user), "user", time.Hour)
	failLate(w, "g-a-two")
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"undo g-a-one", "undo g-a-two", "undo user"}, slices.Sorted(slices.Values(w.calls[5:])))
	require.Equal(t, "undo g-a-one", w.calls[7])
	require.Contains(t, outcomes(report), "user settled restored")
}

// A pivot of another branch may have come between two steps of the target.
func TestWhatAPivotKeepsOfATargetIsSaid(t *testing.T) {
	w := groupOf(t, `"on_failure": "rollback_target",`)
	pivot := *stepByID(w.steps, "after")
	pivot.ID, pivot.Needs, pivot.Pivot = "p", []string{"g-a-one"}, true
	w.steps = append(w.steps, pivot)
	failLate(w, "g-a-two")
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do before", "do g-a-one", "do g-a-two", "do g-a-two", "do p", "undo g-a-two"},
		sortRange(w.calls, 2, 5))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"rolled back, as its on_failure says: CheckFailed: no",
		"not undone with it, because a pivot that is done came after them: g-a-one"}, notesOf(report, "g-a-two"))
}

// It does not matter where the chain of runs is cut.
func TestATargetIsRolledBackInALaterRun(t *testing.T) {
	for cut := 1; cut <= 12; cut++ {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			w := groupOf(t, `"on_failure": "rollback_target",`)
			w.do = failing("g-b-two")
			l := &chained{T: t, world: w, in: func(n int, r *run) {
				suggestContinueAsNewFrom(r, func(calls int) bool { return n == 1 && calls >= cut })
			}}
			report, err := l.report()
			require.NoError(t, err)
			require.Equal(t, compensations.Partly, report.Status)
			undone := slices.DeleteFunc(slices.Clone(w.calls), func(c string) bool { return !strings.HasPrefix(c, "undo ") })
			require.Equal(t, []string{"undo g-b-two", "undo g-b-one"}, undone)
			require.NotContains(t, w.calls, "do g-d-one")
			require.Contains(t, w.calls, "do g-c-two")
		})
	}
}

// What stands between the batches is left out with them.
func TestATargetThatFailsLeavesOutThePausesAfterIt(t *testing.T) {
	for fails, want := range map[string]struct {
		status compensations.Status
		calls  []string
	}{
		"":          {compensations.Committed, []string{"do g-a-s", "do g-batch-2", "do g-b-s", "do g-batch-3", "do g-c-s"}},
		"g-a-s":     {compensations.Partly, []string{"do g-a-s", "undo g-a-s"}},
		"g-b-s":     {compensations.Partly, []string{"do g-a-s", "do g-batch-2", "do g-b-s", "undo g-b-s"}},
		"g-batch-3": {compensations.Partly, []string{"do g-a-s", "do g-batch-2", "do g-b-s", "do g-batch-3"}},
	} {
		t.Run(fails, func(t *testing.T) {
			w := &world{do: failing(fails)}
			doc, err := task.Parse("task", []byte(`{"name": "t", "steps": [{"id": "g", "for_each": ["a", "b", "c"],
				"pause": "10m", "on_failure": "rollback_target", "steps": [{"id": "s", "uses": "fake.do"}]}]}`))
			require.NoError(t, err)
			known := w.catalog()
			known.Specs = append(known.Specs, activities.Spec{Name: "wait.for", Params: []byte(`{"type": "object"}`),
				Keys: []activities.Key{}, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo})
			known.Journals["wait"] = "none"
			compiled, err := task.Compile(doc, known)
			require.NoError(t, err)
			w.steps = compiled.Steps
			for i := range w.steps {
				w.steps[i].Uses = "fake.do"
			}
			report, err := newRun(t, w).report()
			require.NoError(t, err)
			require.Equal(t, want.status, report.Status)
			require.Equal(t, want.calls, w.calls)
		})
	}
}

// A task that is terminated in the middle of a target's rollback is unwound as a whole: the undo that
// was cut off is repeated, and the target's other step comes next, as it would have.
func TestATaskThatIsTerminatedWhileATargetIsRolledBackIsRecovered(t *testing.T) {
	w := groupOf(t, `"on_failure": "rollback_target", "canary": 4,`)
	w.steps = slices.DeleteFunc(w.steps, func(s task.Step) bool { return strings.HasPrefix(s.ID, "g-c") || strings.HasPrefix(s.ID, "g-d") })
	stepByID(w.steps, "after").Needs = []string{"g-a-two", "g-b-two"}
	stepByID(w.steps, "g-b-one").Needs = []string{"g-a-two"} // so that there is one order
	w.do = refusing("g-b-two")
	letGo := make(chan struct{})
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "g-b-one" && n == 1 {
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.awaitCalls("undo g-b-one", 1)
	l.terminate(l.run.GetID())
	run := l.recover()
	l.awaitCalls("undo g-b-one", 2)
	close(letGo)
	report := l.awaitReport(run)
	require.Equal(t, []string{"do before", "do g-a-one", "do g-a-two", "do g-b-one", "do g-b-two", "undo g-b-two",
		"undo g-b-one", "undo g-b-one", "undo g-a-two", "undo g-a-one", "undo before"}, l.calls())
	require.Equal(t, compensations.Unwound, report.Status)
	require.ElementsMatch(t, []string{"before settled restored", "g-a-one settled restored", "g-a-two settled restored",
		"g-b-one settled restored", "g-b-two settled restored"}, outcomes(report))
}

// What waits for a step of the target is left out, also when that step was done in an earlier run.
func TestWhatNeedsATargetThatIsRolledBackIsLeftOut(t *testing.T) {
	for cut := 1; cut <= 8; cut++ {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			w := groupOf(t, `"on_failure": "rollback_target", "needs": [],`)
			slow, user := *stepByID(w.steps, "before"), *stepByID(w.steps, "after")
			slow.ID = "slow"
			user.ID, user.Needs = "user", []string{"g-a-one", "slow"}
			w.steps = append(w.steps, slow, user)
			finishLate(w.steps, "slow")
			finishLate(w.steps, "g-a-two")
			w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
				switch {
				case n == 1 && (s == "slow" || s == "g-a-two"):
					return activities.Result{}, errAgain
				case s == "g-a-two":
					return activities.Result{}, errNo
				}
				return activities.Result{}, nil
			}
			l := &chained{T: t, world: w, in: func(n int, r *run) {
				suggestContinueAsNewFrom(r, func(calls int) bool { return n == 1 && calls >= cut })
			}}
			report, err := l.report()
			require.NoError(t, err)
			require.Contains(t, w.calls, "undo g-a-one")
			if i := slices.Index(w.calls, "do user"); i >= 0 { // then it ran before, and is undone first
				require.Less(t, i, slices.Index(w.calls, "undo user"))
				require.Less(t, slices.Index(w.calls, "undo user"), slices.Index(w.calls, "undo g-a-one"))
				return
			}
			require.Contains(t, outcomes(report), "user left-out ")
		})
	}
}
