package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// markCommits gives the named steps, or all if none is named, an action that is told of commits.
func markCommits(steps []task.Step, ids ...string) []task.Step {
	for i := range steps {
		steps[i].Commits = len(ids) == 0
	}
	for _, id := range ids {
		stepByID(steps, id).Commits = true
	}
	return steps
}

func TestATaskThatCommitsTellsEachPlaceOnce(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "b", "c", "d"), "a", "c", "d")}
	stepByID(w.steps, "c").Place.Journal = "k"
	w.commit = func(context.Context, int, activities.Commitment) (activities.Committed, error) {
		return activities.Committed{Notes: []string{"a word"}}, nil
	}
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do b", "do c", "do d", "commit 2 at j", "commit 1 at k"}, w.calls)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"a word", "a word"}, report.Notes)
}

func TestACommitIsTriedUntilItSucceeds(t *testing.T) {
	w := &world{steps: markCommits(chain("a"))}
	w.commit = func(_ context.Context, n int, _ activities.Commitment) (activities.Committed, error) {
		switch n {
		case 1:
			return activities.Committed{}, temporal.NewNonRetryableApplicationError("stopping", string(activities.WorkerStopping), nil)
		case 2, 3:
			return activities.Committed{}, errAgain
		}
		return activities.Committed{}, nil
	}
	report, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Len(t, w.calls, 5)
}

func TestATaskThatIsCanceledInItsCommitUnwinds(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "b"))}
	w.commit = func(_ context.Context, n int, _ activities.Commitment) (activities.Committed, error) {
		if n < 6 {
			return activities.Committed{}, errAgain
		}
		return activities.Committed{}, nil
	}
	r := newRun(t, w)
	r.runAfter(5*time.Second, r.env.CancelWorkflow)
	report, err := r.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, "undo a", w.calls[len(w.calls)-4])
	require.Equal(t, []string{"undo b", "undo a"}, w.calls[len(w.calls)-5:len(w.calls)-3])
	require.Equal(t, "commit 2 at j", w.calls[len(w.calls)-1], "what stands after it is made durable too")
}

func TestACommitThatFailsForGoodUnwindsTheTask(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "b"), "b")}
	w.commit = func(context.Context, int, activities.Commitment) (activities.Committed, error) {
		return activities.Committed{}, temporal.NewNonRetryableApplicationError("no such place", string(activities.WrongPlace), nil)
	}
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, workflows.TaskFailed)
	require.Equal(t, []string{"do a", "do b", "commit 1 at j", "undo b", "undo a", "commit 1 at j"}, w.calls)
	require.Contains(t, report.Cause.Text, "could not be made durable")
	require.Len(t, report.Notes, 1)
}

func TestAPivotIsCommittedBeforeTheTaskGoesOn(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "p", "c", "d")), do: failing("d")}
	stepByID(w.steps, "p").Pivot = true
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, workflows.TaskFailed)
	require.Equal(t, []string{"do a", "do p", "commit 2 at j", "do c", "do d", "undo d", "undo c", "commit 2 at j"}, w.calls)
	require.Equal(t, compensations.Partly, report.Status)
}
