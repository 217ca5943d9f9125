package compensations_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// encodeCarry returns what the next run of a chain gets, passed through JSON as on a server.
func encodeCarry(t *testing.T, saga *compensations.Saga) *compensations.Carry {
	t.Helper()
	raw, err := json.Marshal(saga.Carry())
	require.NoError(t, err)
	var c compensations.Carry
	require.NoError(t, json.Unmarshal(raw, &c))
	return &c
}

// unwindInRuns unwinds a script in runs that each pause after that many undos, and returns the last
// report and the number of runs.
func unwindInRuns(t *testing.T, s *script, undos int) (compensations.Report, int) {
	t.Helper()
	for runs := 1; ; runs++ {
		require.Less(t, runs, 20, "%v", s.world.calls)
		before := len(s.world.calls)
		s.options.Pause = func() bool { return len(s.world.calls)-before >= undos }
		var carried *compensations.Carry
		s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
			r := saga.Unwind(ctx, cause)
			carried = encodeCarry(t, saga)
			return r
		}
		report := s.run(t)
		if report.Status != compensations.Open {
			return report, runs
		}
		s.from, s.steps = carried, nil
	}
}

func TestAPausedUnwindGoesOnInTheNextRun(t *testing.T) {
	s := &script{world: &world{}, steps: chain("a", "b", "c", "d")}
	report, runs := unwindInRuns(t, s, 1)
	require.Equal(t, 4, runs)
	require.Equal(t, []string{"undo d", "undo c", "undo b", "undo a"}, s.world.calls)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"restored": 4}, report.Outcomes)
	require.Len(t, report.Steps, 4)
}

func TestADecisionHoldsInTheNextRun(t *testing.T) {
	s := &script{world: &world{undo: parkFirstUndo("c", "b")}, steps: chain("a", "b", "c"),
		decide: map[string]compensations.Do{
			"c": compensations.Skip, "b": compensations.Retry, "a": compensations.Retry,
		}}
	// The pause begins with the first undo and does not cut alerts short: the decisions that they lead
	// to come before the run ends.
	report, runs := unwindInRuns(t, s, 1)
	require.Greater(t, runs, 2)
	require.Equal(t, []string{"undo c", "undo b", "undo b", "undo a"}, s.world.calls)
	require.Equal(t, []string{"c parked", "b parked", "b parked"}, s.alerts)
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{"c skipped unknown", "b settled restored", "a settled restored"}, rows(report.Steps))
}

// A missing host holds back its own steps only, even in a run that is about to end.
func TestAMissingHostDoesNotHoldUpAPause(t *testing.T) {
	w := &world{undo: func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 { // what a server would return
			return activities.Undone{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		return restored, nil
	}}
	s := &script{world: w, steps: chain("a", "b")}
	report, runs := unwindInRuns(t, s, 1)
	require.Equal(t, 3, runs)
	require.Equal(t, []string{"undo b", "undo b", "undo a"}, w.calls)
	require.Equal(t, []string{"b waiting"}, s.alerts)
	require.Equal(t, compensations.Unwound, report.Status)
}

// Nor does an open breaker: the next run asks again.
func TestAnOpenBreakerDoesNotHoldUpAPause(t *testing.T) {
	s := &script{world: &world{undo: cutOff("b", 2)}, steps: chain("a", "b")}
	report, runs := unwindInRuns(t, s, 1)
	require.Equal(t, 4, runs)
	require.Equal(t, []string{"undo b", "undo b", "undo b", "undo a"}, s.world.calls)
	require.Equal(t, []string{"b waiting", "b waiting"}, s.alerts)
	require.Equal(t, compensations.Unwound, report.Status)
}

func TestAPausedPartIsFinishedInTheNextRun(t *testing.T) {
	// a and what builds on it are undone, one in each run: c is skipped, so b waits for a person, who
	// retries it alone. Then only the first run knew that c is one of them.
	s := &script{world: &world{undo: parkFirstUndo("c")}, steps: chain("a", "b", "c", "d"),
		decide: map[string]compensations.Do{
			"c": compensations.Skip, "b": compensations.Retry,
		}}
	s.steps = append(s.steps, plain{ID: "x"})
	var ended []string
	var left []int
	for runs := 1; ; runs++ {
		require.Less(t, runs, 10)
		before := len(s.world.calls)
		s.options.Pause = func() bool { return len(s.world.calls) > before }
		var carried *compensations.Carry
		s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
			r := saga.UnwindSteps(ctx, cause, named("a"))
			require.False(t, saga.Unwinding())
			carried = encodeCarry(t, saga)
			return r
		}
		report := s.run(t)
		require.Equal(t, cause, *report.Cause)
		for _, r := range report.Steps {
			if r.Outcome != "" && r.State != string(compensations.Skipped) {
				ended = append(ended, r.Step)
			}
		}
		left = append(left, len(carried.Unfinished))
		if report.Status != compensations.Open {
			require.Equal(t, []string{"c skipped unknown"}, rows(report.Steps)[1:], "also of those that an earlier run left")
			break
		}
		s.from, s.steps = carried, nil
	}
	require.Equal(t, []string{"undo d", "undo c", "undo b", "undo a"}, s.world.calls)
	require.Equal(t, []string{"d", "b", "a"}, ended)
	require.Equal(t, []int{3, 3, 2, 0}, left)
}

func TestStepsDroppedFromACarryAreStillCounted(t *testing.T) {
	s := &script{world: &world{}, steps: chain("a", "b", "c")}
	s.world.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "c" {
			return activities.Undone{Outcome: activities.Residue, Observed: strings.Repeat("x", 500)}, nil
		}
		return restored, nil
	}
	var carried *compensations.Carry
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		r := saga.UnwindSteps(ctx, cause, named("b"))
		carried = encodeCarry(t, saga)
		return r
	}
	s.run(t)
	carried.Shorten(40)
	require.Equal(t, strings.Repeat("x", 40)+"...", carried.Past.Steps[1].Observed)
	require.Equal(t, 1, carried.Past.DropSteps(1), "the clean one first")
	require.Equal(t, 1, carried.Past.DropSteps(0))
	s.from, s.steps = carried, nil
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, compensations.Remains, report.Status)
	require.Equal(t, map[string]int{"restored": 2, "residue": 1}, report.Outcomes)
}

func TestSequenceNumbersAreUniqueInAllRuns(t *testing.T) {
	s := &script{world: &world{}, steps: chain("a", "b")}
	var carried *compensations.Carry
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		saga.UnwindSteps(ctx, cause, named("b"))
		carried = encodeCarry(t, saga)
		return compensations.Report{}
	}
	s.run(t)
	s.from, s.steps = carried, nil
	s.then = func(ctx workflow.Context, saga *compensations.Saga) compensations.Report {
		require.Equal(t, 3, saga.Register(ctx, compensations.Step{ID: "c", Action: "Do", Undo: "Undo"}).Seq, "2 was b's")
		require.Equal(t, 1, saga.Register(ctx, compensations.Step{ID: "a", Action: "Do", Undo: "Undo"}).Seq, "the same step")
		require.Equal(t, 1, saga.Past().Count)
		return saga.Unwind(ctx, cause)
	}
	report := s.run(t)
	require.Equal(t, []string{"undo b", "undo c", "undo a"}, s.world.calls)
	require.Equal(t, map[string]int{"restored": 3}, report.Outcomes)
	require.Less(t, report.Lasted, time.Minute)
}

func TestADeadRunLeavesItsCarryAndWhatItScheduled(t *testing.T) {
	entry := func(step string, seq int) activities.Entry {
		return activities.Entry{Version: 1, Seq: seq, Step: step, Token: step, UndoType: "Undo"}
	}
	handed := compensations.Carry{Entries: []activities.Entry{entry("a", 1), entry("b", 2)}, Last: 2}
	handed.Progress = map[string]compensations.Progress{"b": {State: compensations.Parked}}
	left := handed.After(activities.Trace{
		Entries: []activities.Entry{entry("c", 3), entry("d", 4)},
		Settled: map[string]activities.Undone{"d": restored, "b": restored},
	})
	require.Equal(t, []activities.Entry{entry("a", 1), entry("c", 3)}, left.Entries)
	require.Equal(t, 4, left.Last)
	require.Equal(t, map[string]int{"restored": 2}, left.Past.Outcomes)
	require.Empty(t, left.Progress)
	require.Len(t, handed.Progress, 1, "what the run was handed is as it was")
}

func TestADeadRunLeavesWhatItsForcesOverwrote(t *testing.T) {
	a := activities.Entry{Version: 1, Seq: 1, Step: "a", Token: "a", UndoType: "Undo"}
	b := activities.Entry{Version: 1, Seq: 2, Step: "b", Token: "b", UndoType: "Undo"}
	drift := func(digest activities.Digest) *activities.Undone {
		return &activities.Undone{Outcome: activities.Drifted,
			Drift: &activities.Drift{Digest: digest, Diff: "of " + string(digest)}}
	}
	handed := compensations.Carry{Entries: []activities.Entry{a, b}, Last: 2}
	handed.Progress = map[string]compensations.Progress{"a": {State: compensations.Parked}}
	end := handed.Progress["a"]
	end.Undone = *drift("one")
	handed.Progress["a"] = end
	left := handed.After(activities.Trace{
		Attempts: []activities.Attempt{{Token: "a", Undone: drift("two")}, {Token: "b", Undone: drift("theirs")}},
		Forced:   map[string][]activities.Digest{"a": {"one", "two"}, "b": {"theirs", "unknown"}},
		Settled:  map[string]activities.Undone{"a": restored},
	})
	require.Len(t, left.Past.Steps, 1)
	require.Equal(t, &activities.Drift{Digest: "two", Diff: "of two\nof one"}, left.Past.Steps[0].Drift)
	require.Equal(t, drift("theirs").Drift, left.Progress["b"].ForcedDrift, "its undo is done again")
	require.Equal(t, compensations.Pending, left.Progress["b"].State)
}
