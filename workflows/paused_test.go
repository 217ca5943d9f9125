package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// While a task is paused in Temporal, no limit of it passes.

func TestAGateIsGivenTheTimeOfAPause(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour), paused: 30 * time.Minute}
	r := newRun(t, w)
	r.runAfter(80*time.Minute, func() {
		require.Equal(t, 90*time.Minute, r.state().Gates[0].Until.Sub(r.state().Gates[0].Since))
		r.decide(protocol.SignalApprove)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestAGateFailsClosedAfterTheTimeOfAPause(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour), paused: 30 * time.Minute}
	r := newRun(t, w)
	began := r.env.Now()
	_, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.ErrorContains(t, err, "nobody approved step b within 1h0m0s")
	require.GreaterOrEqual(t, r.env.Now().Sub(began), 90*time.Minute)
	require.Less(t, r.env.Now().Sub(began), 100*time.Minute)
}

func TestTheDeadlineIsPutOffByAPause(t *testing.T) {
	for name, after := range map[string]time.Duration{"in time": 80 * time.Minute, "late": 100 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := &world{steps: addGate(chain("a"), "a", 5*time.Hour), deadline: time.Hour, paused: 30 * time.Minute}
			r := newRun(t, w)
			if name == "in time" {
				r.runAfter(after, func() { r.decide(protocol.SignalApprove) })
			}
			_, err := r.report()
			if name == "in time" {
				require.NoError(t, err)
				return
			}
			r.failsAs(err, protocol.TaskDeadline)
			require.Equal(t, []string{"plan a", "undo a"}, w.calls)
		})
	}
}

func TestTheBudgetOfAnUndoIsGivenTheTimeOfAPause(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: failing("b"), paused: time.Hour}
	began := time.Time{}
	r := newRun(t, w)
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		now := r.env.Now()
		if step == "a" && (began.IsZero() || now.Sub(began) < 40*time.Minute) {
			if began.IsZero() {
				began = now
			}
			return activities.Undone{}, temporal.NewNonRetryableApplicationError("open", string(activities.BreakerOpen), nil)
		}
		return activities.Undone{Outcome: activities.Restored, Observed: "as before"}, nil
	}
	report, err := r.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status, "its 10 minutes had passed, of which it was paused")
}

// pause has somebody pause the task, and unpause has them let it go on.
func (l *live) pause() {
	_, err := l.client.WorkflowService().PauseWorkflowExecution(l.Context(),
		&workflowservice.PauseWorkflowExecutionRequest{
			Namespace: "default", WorkflowId: l.run.GetID(), Identity: "ann", RequestId: "pause",
		})
	require.NoError(l, err)
}

func (l *live) unpause() {
	_, err := l.client.WorkflowService().UnpauseWorkflowExecution(l.Context(),
		&workflowservice.UnpauseWorkflowExecutionRequest{
			Namespace: "default", WorkflowId: l.run.GetID(), Identity: "ann", RequestId: "unpause",
		})
	require.NoError(l, err)
}

func TestThePausesOfARunAreReadFromItsHistory(t *testing.T) {
	l := startLive(t, &world{steps: addGate(chain("a"), "a", time.Hour)})
	l.awaitState(func(s protocol.State) bool { return len(s.Gates) == 1 })
	began := l.events(t.Context(), "")[0].GetEventTime().AsTime()
	l.pause()
	l.unpause()
	var paused, unpaused time.Time
	for _, e := range l.events(t.Context(), "") {
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_PAUSED:
			paused = e.GetEventTime().AsTime()
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UNPAUSED:
			unpaused = e.GetEventTime().AsTime()
		}
	}
	for since, want := range map[time.Time]time.Duration{began: unpaused.Sub(paused), unpaused.Add(time.Nanosecond): 0} {
		got, err := l.server().Paused(t.Context(), l.run.GetID(), l.run.GetRunID(), since)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	l.approve()
	_, err := l.report()
	require.NoError(t, err)
}

func TestAPausedSessionSaysSo(t *testing.T) {
	l := newLive(t, servertest.Client(t), &world{})
	s := l.openSession()
	l.pause()
	_, stepped := s.Step(t.Context(), "1", []byte(`{"id": "a", "uses": "fake.do"}`))
	_, asked := s.State(t.Context())
	for _, err := range []error{stepped, asked} {
		var refusal session.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, protocol.SessionPaused, refusal.Type)
		require.Contains(t, refusal.Text, "temporal workflow unpause --workflow-id "+l.Name())
	}
	l.unpause()
	_, err := s.Abort(t.Context(), "2", protocol.AbortRequest{Who: "ann", Why: "enough"})
	require.NoError(t, err)
}
