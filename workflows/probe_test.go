package workflows_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestAForwardWithAnUnknownOutcomeIsProbed(t *testing.T) {
	unknown := temporal.NewNonRetryableApplicationError("lost", string(activities.UnknownOutcome), nil)
	for _, c := range []struct {
		name  string
		seen  activities.State
		times int // how often the forward's outcome is unknown
		calls []string
		note  string
	}{
		{"had happened", activities.AsLeft, 9, []string{"do a", "do b", "observe b", "undo b", "undo a"},
			"probe: it had happened"},
		{"had not, and is done then", activities.AsBefore, 2,
			[]string{"do a", "do b", "observe b", "do b", "observe b", "do b"}, "probe: it had not happened"},
		{"had not, each time", activities.AsBefore, 9, []string{
			"do a", "do b", "observe b", "do b", "observe b", "do b", "observe b", "do b", "observe b", "undo b", "undo a",
		}, "probe: it had not happened"},
		{"drifted", activities.Elsewise, 9, []string{"do a", "do b", "observe b", "undo b", "undo a"},
			"probe: whether it happened cannot be known"},
		{"not seen", activities.Unseen, 9, []string{"do a", "do b", "observe b", "undo b", "undo a"},
			"probe: whether it happened cannot be known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{steps: chain("a", "b"), seen: c.seen}
			w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
				if s == "b" && n <= c.times {
					return activities.Result{}, unknown
				}
				return activities.Result{}, nil
			}
			report, err := newRun(t, w).report()
			require.Equal(t, c.calls, w.calls)
			require.Equal(t, c.times == 9, err != nil)
			require.Equal(t, slices.Repeat([]string{c.note}, w.count["observe b"]), notesOf(report, "b"))
		})
	}
}

func TestATimedOutForwardIsProbedAndNotRetried(t *testing.T) {
	w := &world{steps: chain("a", "b"), seen: activities.AsBefore}
	w.do = func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == "b" {
			return activities.Result{}, temporal.NewTimeoutError(1, nil)
		}
		return activities.Result{}, nil
	}
	stepByID(w.steps, "b").Retry.Attempts = 2
	report, err := newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t, []string{"do a", "do b", "do b", "observe b", "undo b", "undo a"}, w.calls,
		"its own attempts are used up")
	require.Equal(t, []string{"probe: it had not happened"}, notesOf(report, "b"))
	require.Contains(t, report.Cause.Text, "timed out: an attempt took longer than its limit of 1m0s")
}
