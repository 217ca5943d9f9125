package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// releasing is a world that has released the record of the first of its steps.
func releasing(released *atomic.Bool) *world {
	return &world{steps: chain("a", "b", "c"), hold: func(_ context.Context, r workflows.HoldRequest) (held workflows.Held, err error) {
		if released.Load() {
			held.Released = r.Tokens[:1]
		}
		return held, nil
	}}
}

func TestARollbackThatDiesBeforeItHoldsTheRecordsIsHeldByItsRecovery(t *testing.T) {
	for name, isReleased := range map[string]bool{"held": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			var released atomic.Bool
			released.Store(isReleased)
			w := releasing(&released)
			hold, asked, letGo := w.hold, make(chan struct{}), make(chan struct{})
			var isFirst atomic.Bool
			isFirst.Store(true)
			w.hold = func(ctx context.Context, r workflows.HoldRequest) (workflows.Held, error) {
				if isFirst.Swap(false) {
					close(asked)
					return workflows.Held{}, block(ctx, letGo)
				}
				return hold(ctx, r)
			}
			l := startLive(t, w)
			back := l.rollback("")
			<-asked
			l.terminate(back.WorkflowID)
			close(letGo)
			dead, err := l.server().Find(t.Context(), back.WorkflowID)
			require.NoError(t, err)
			run, err := l.server().Recover(t.Context(), dead, "eve")
			require.NoError(t, err)
			report := l.awaitReport(run)
			want := []string{"do a", "do b", "do c"}
			if isReleased {
				require.Contains(t, report.Cause.Text, "nothing was touched: ")
				require.Contains(t, report.Cause.Text, "the undo records of 1 of 3 steps are released (a)")
			} else {
				want = append(want, "undo c", "undo b", "undo a")
			}
			require.Equal(t, want, l.calls())
			require.Equal(t, compensations.Unwound, report.Status)
		})
	}
}

func TestATaskThatWasResetAfterItsEndIsUnwoundWholeOrNotAtAll(t *testing.T) {
	for name, isReleased := range map[string]bool{"held": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			var released atomic.Bool
			released.Store(isReleased)
			l := startLive(t, releasing(&released))
			_, err := l.report()
			require.NoError(t, err)
			l.resetTo(2) // two steps are scheduled by then
			report, err := l.report()
			require.Error(t, err)
			want := []string{"do a", "do b", "do c"}
			if isReleased {
				require.Equal(t, compensations.Partly, report.Status)
				require.Contains(t, report.Notes[0], "everything stays as the task had left it: Refused: the undo records of 1 of 3 steps are released (a)")
			} else {
				want = append(want, "undo c", "undo b", "undo a")
				require.Equal(t, compensations.Unwound, report.Status)
			}
			require.Equal(t, want, l.calls())
		})
	}
}

func TestARollbackThatWaitsForTheHostOfARecordCanBeCanceled(t *testing.T) {
	asked := make(chan struct{}, 10)
	w := &world{steps: chain("a", "b"), hold: func(ctx context.Context, _ workflows.HoldRequest) (workflows.Held, error) {
		asked <- struct{}{}
		return workflows.Held{}, block(ctx, never)
	}}
	l := startLive(t, w)
	back := l.rollback("")
	<-asked
	require.NoError(t, l.client.CancelWorkflow(t.Context(), back.WorkflowID, ""))
	require.ErrorContains(t, l.client.GetWorkflow(t.Context(), back.WorkflowID, "").Get(t.Context(), nil), "canceled")
	require.Equal(t, []string{"do a", "do b"}, l.calls())
}
