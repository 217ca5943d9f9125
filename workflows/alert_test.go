package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// refuseAlertsUntil has no alert taken before ok says so.
func (l *alertLog) refuseAlertsUntil(r *run, ok func() bool) {
	r.env.RegisterActivityWithOptions(func(_ context.Context, a []protocol.Alert) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !ok() {
			return errors.New("the server is away")
		}
		l.all = append(l.all, a...)
		return nil
	}, activity.RegisterOptions{Name: protocol.AlertActivity, DisableAlreadyRegisteredCheck: true})
}

func TestAGateIsToldAlsoAfterHoursInWhichNobodyCouldBe(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", 24*time.Hour)}
	r := newRun(t, w)
	var alerts alertLog
	isBack := false
	alerts.refuseAlertsUntil(r, func() bool { return isBack })
	r.runAfter(time.Minute, func() { require.Empty(t, r.state().Troubles, "it may be over soon") })
	r.runAfter(10*time.Minute, func() {
		troubles := r.state().Troubles
		require.Len(t, troubles, 1)
		require.Equal(t, "have people told of 1 alert", troubles[0].What)
		require.Equal(t, "the server is away", troubles[0].Reason)
	})
	r.runAfter(5*time.Hour, func() { isBack = true })
	r.runAfter(5*time.Hour+2*time.Minute, func() {
		require.Empty(t, r.state().Troubles)
		gate := r.state().Gates[0]
		sent := alerts.sent()
		require.Len(t, sent, 1, "once")
		require.Equal(t, protocol.Alert{
			Task: "task-1", Run: "default-test-run-id", Step: "b", Action: "fake.do", State: protocol.Gated,
			Reason: "the task file asks", Digest: gate.Digest,
			At: gate.Since, Summary: gate.Change.Summary, Risk: gate.Change.Risk, Until: gate.Until,
		}, sent[0])
		r.decide(protocol.SignalApprove)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Empty(t, report.Notes)
}

func TestATaskDoesNotWaitForItsAlertsToEnd(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", 24*time.Hour)}
	r := newRun(t, w)
	var alerts alertLog
	alerts.refuseAlertsUntil(r, func() bool { return false })
	var decided time.Time
	r.runAfter(time.Hour, func() { decided = r.env.Now(); r.decide(protocol.SignalApprove) })
	report, err := r.report()
	require.NoError(t, err)
	require.Less(t, r.env.Now().Sub(decided), 5*time.Minute)
	require.Equal(t,
		[]string{"nobody was alerted about 1 thing, as no channel took it: the server is away"}, report.Notes)
	require.Empty(t, alerts.sent())
}

// Whatever nobody has been told when a run is long is told by the next one.
func TestAlertsThatNobodyTookAreToldByTheNextRun(t *testing.T) {
	var alerts alertLog
	w := &world{steps: chain("a", "b", "x"), do: failing("x"), undo: parkFirstUndo("b")}
	stepByID(w.steps, "x").Needs = []string{"a"}
	addGate(w.steps, "x", time.Minute) // nobody approves it
	l := &chained{T: t, world: w, in: func(n int, r *run) {
		alerts.refuseAlertsUntil(r, func() bool { return n == 2 })
		if n == 1 {
			suggestContinueAsNewFrom(r, func(calls int) bool { return calls == 5 }) // do a, do b, plan x, undo x, undo b
			return
		}
		r.runAfter(time.Minute, func() {
			require.Len(t, alerts.sent(), 2, "of the gate and of the park")
			require.Equal(t, []compensations.UndoState{protocol.Gated, compensations.Parked},
				[]compensations.UndoState{alerts.sent()[0].State, alerts.sent()[1].State})
			r.env.SignalWorkflow(compensations.SignalResolve,
				compensations.Resolution{Step: "b", Digest: alerts.sent()[1].Digest, Do: compensations.Retry, Who: "eve"})
		})
	}}
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskRejected)
	require.Equal(t, 2, l.runs)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, report.Notes)
}
