package workflows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
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
			return activities.Committed{}, temporal.NewNonRetryableApplicationError("stopping",
				string(activities.WorkerStopping), nil)
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

// A commit that fails without end keeps its task open: people must learn of it.
func TestACommitThatFailsForMinutesIsShownAndAlerted(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "b"))}
	var mended atomic.Bool
	w.commit = func(context.Context, int, activities.Commitment) (activities.Committed, error) {
		if mended.Load() {
			return activities.Committed{}, nil
		}
		return activities.Committed{}, errors.New("the disk is full")
	}
	r := newRun(t, w)
	var alerts alertLog
	alerts.keepThoseOf(r)
	r.runAfter(time.Minute, func() { require.Empty(t, r.state().Troubles, "it may be over soon") })
	r.runAfter(time.Hour, func() {
		troubles := r.state().Troubles
		require.Len(t, troubles, 1)
		require.Equal(t, "make durable what 2 steps did", troubles[0].What)
		require.Equal(t, "the disk is full", troubles[0].Reason)
		require.Len(t, alerts.sent(), 1, "once")
		require.Equal(t, protocol.Failing, alerts.sent()[0].State)
		require.Equal(t, "make durable what 2 steps did: the disk is full", alerts.sent()[0].Reason)
		mended.Store(true)
	})
	r.runAfter(4*time.Hour, func() { require.Fail(t, "it is still open") })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Empty(t, r.state().Troubles)
}

func TestACommitWhoseHostIsAwayIsShown(t *testing.T) {
	w := &world{steps: markCommits(chain("a"))}
	w.steps[0].Place.Host = "away"
	var troubles []protocol.Trouble
	w.commit = func(_ context.Context, n int, _ activities.Commitment) (activities.Committed, error) {
		if n == 1 { // as a server would return: in the test environment every queue is served
			return activities.Committed{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		if n < 10 {
			return activities.Committed{}, errAgain
		}
		return activities.Committed{}, nil
	}
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { troubles = r.state().Troubles })
	_, err := r.report()
	require.NoError(t, err)
	require.Len(t, troubles, 1)
	require.Equal(t, "make durable what 1 step did", troubles[0].What)
	require.Equal(t, "waiting for host away", troubles[0].Reason)
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
		return activities.Committed{},
			temporal.NewNonRetryableApplicationError("no such place", string(activities.WrongPlace), nil)
	}
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{"do a", "do b", "commit 1 at j", "undo b", "undo a", "commit 1 at j"}, w.calls)
	require.Contains(t, report.Cause.Text, "could not be made durable")
	require.Len(t, report.Notes, 1)
}

func TestAPivotIsCommittedBeforeTheTaskGoesOn(t *testing.T) {
	w := &world{steps: markCommits(chain("a", "p", "c", "d")), do: failing("d")}
	stepByID(w.steps, "p").Pivot = true
	r := newRun(t, w)
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, []string{"do a", "do p", "commit 2 at j", "do c", "do d", "undo d", "undo c", "commit 2 at j"},
		w.calls)
	require.Equal(t, compensations.Partly, report.Status)
}
