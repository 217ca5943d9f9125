package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// releasing is a world that has released the record of the first of its steps.
func releasing(released *atomic.Bool) *world {
	return &world{steps: chain("a", "b", "c"),
		hold: func(_ context.Context, r protocol.HoldRequest) (held protocol.Held, err error) {
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
			w.hold = func(ctx context.Context, r protocol.HoldRequest) (protocol.Held, error) {
				if isFirst.Swap(false) {
					close(asked)
					return protocol.Held{}, block(ctx, letGo)
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
				require.Contains(t, report.Notes[0],
					"everything stays as the task had left it: Refused: the undo records of 1 of 3 steps are released (a)")
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
	w := &world{steps: chain("a", "b"), hold: func(ctx context.Context, _ protocol.HoldRequest) (protocol.Held, error) {
		asked <- struct{}{}
		return protocol.Held{}, block(ctx, never)
	}}
	l := startLive(t, w)
	back := l.rollback("")
	<-asked
	require.NoError(t, l.client.CancelWorkflow(t.Context(), back.WorkflowID, ""))
	require.ErrorContains(t, l.client.GetWorkflow(t.Context(), back.WorkflowID, "").Get(t.Context(), nil), "canceled")
	require.Equal(t, []string{"do a", "do b"}, l.calls())
}

func TestARollbackWhoseHostIsAwayShowsIt(t *testing.T) {
	w := &world{steps: chain("a", "b")}
	l := newLive(t, servertest.Client(t), w)
	w.steps[1].Place.Queue, w.steps[1].Place.Host, w.steps[1].Undo.HostWait = l.queue+"@away", "away", time.Second
	l.startWorker()
	away := l.serve(l.queue + "@away")
	l.start()
	_, err := l.report()
	require.NoError(t, err)
	away()
	back := l.rollback("")
	l.run = l.client.GetWorkflow(t.Context(), back.WorkflowID, "")
	troubles := l.awaitState(func(s protocol.State) bool { return len(s.Troubles) == 1 }).Troubles
	require.Equal(t, "hold 1 record of the world fake", troubles[0].What)
	require.Equal(t, "waiting for host away", troubles[0].Reason)
	require.Eventually(t, func() bool {
		d, err := l.client.DescribeWorkflowExecution(t.Context(), back.WorkflowID, "")
		return err == nil &&
			string(d.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields()[protocol.AttributeFailing.GetName()].GetData()) == `"hold 1 record of the world fake"`
	}, time.Minute, 20*time.Millisecond, "lists show it")
	l.serve(l.queue + "@away")
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
}
