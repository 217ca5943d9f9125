package tasks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// keptRuns is a server with the histories of runs.
type keptRuns struct {
	client.Client

	events map[string][]*historypb.HistoryEvent
}

func (k keptRuns) GetWorkflowHistory(_ context.Context, _, run string, _ bool,
	_ enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	return &eventIterator{k.events[run]}
}

type eventIterator struct{ left []*historypb.HistoryEvent }

func (i *eventIterator) HasNext() bool { return len(i.left) > 0 }

func (i *eventIterator) Next() (*historypb.HistoryEvent, error) {
	if len(i.left) == 0 {
		return nil, serviceerror.NewNotFound("no such run")
	}
	event := i.left[0]
	i.left = i.left[1:]
	return event, nil
}

func continuedFrom(run string) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{EventId: 1, EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				ContinuedExecutionRunId: run},
		}}
}

func TestARunThatTheServerNoLongerKeepsIsLeftOut(t *testing.T) {
	c := &Client{
		Client: keptRuns{events: map[string][]*historypb.HistoryEvent{"third": {continuedFrom("second")},
			"second": {continuedFrom("first")}}}}
	all, err := c.openHistories(t.Context(), Run{ID: "long", RunID: "third"})
	require.NoError(t, err)
	var from []string
	for _, h := range all {
		from = append(from, h.first.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId())
	}
	require.Equal(t, []string{"first", "second"}, from, "the earlier one comes first")
	_, err = c.openHistories(t.Context(), Run{ID: "long", RunID: "gone"})
	require.ErrorContains(t, err, "no such run")
}

// TestWaitingAtAGateIsNoWork reads a step that a person has approved an hour after it was planned.
func TestWaitingAtAGateIsNoWork(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	r := newHistoryReader(dc)
	input, err := dc.ToPayloads(activities.Forward{Entry: activities.Entry{Step: "a", Action: "fake.do",
		UndoType: "fake.do.undo"}})
	require.NoError(t, err)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.scheduleActivity(9, "fake.do", input, at)
	r.failActivity(r.scheduled[9], "Asks: nobody has approved this change", protocol.StepFailed, at)
	for id, name := range []string{"fake.do.plan", "fake.do"} {
		r.scheduleActivity(int64(id), name, input, at)
		at = at.Add(time.Second)
		r.completeActivity(r.scheduled[int64(id)], nil, at)
		at = at.Add(time.Hour)
	}
	require.Equal(t, time.Hour, r.stepView("a").Waited)
	require.Equal(t, 2*time.Second, r.stepView("a").Took(at))
	require.Empty(t, r.stepView("a").Error, "that it asks was no failure")
}

// TestAStepThatRanAgainAfterItsUndoStands reads a step that was done, undone, and done again.
func TestAStepThatRanAgainAfterItsUndoStands(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	r := newHistoryReader(dc)
	input, err := dc.ToPayloads(activities.Forward{Entry: activities.Entry{Step: "a", Action: "fake.do",
		UndoType: "fake.do.undo"}})
	require.NoError(t, err)
	run := func(id int64, name string, result any) {
		raw, err := dc.ToPayloads(result)
		require.NoError(t, err)
		r.scheduleActivity(id, name, input, time.Time{})
		r.completeActivity(r.scheduled[id], raw, time.Time{})
	}
	stands := func() bool { return Changed{Step: r.step(*r.stepView("a"))}.Stands() }
	run(1, "fake.do", activities.Result{})
	require.True(t, stands())
	run(2, "fake.do.undo", activities.Undone{Outcome: activities.Restored})
	require.False(t, stands())
	require.Equal(t, protocol.RolledBack, r.state.Steps[0].State)
	require.Zero(t, r.state.Done)
	run(3, "fake.do", activities.Result{})
	require.True(t, stands())
	require.Nil(t, r.step(*r.stepView("a")).Undo)
	require.Equal(t, string(compensations.Settled), r.state.Report.Steps[0].State, "the report keeps what was undone")
	require.Equal(t, protocol.Done, r.state.Steps[0].State)
}

// TestAForwardThatWasKeptFromActingDidNotAct reads a step that asked, was planned, acted and failed, and
// another try of it that was denied.
func TestAForwardThatWasKeptFromActingDidNotAct(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	r := newHistoryReader(dc)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	call := func(id int64, name string, generation int, failure activities.ErrorType) time.Time {
		at = at.Add(time.Second)
		input, err := dc.ToPayloads(activities.Forward{Entry: activities.Entry{Step: "a", Action: "fake.do",
			UndoType: "fake.do.undo", Generation: generation}})
		require.NoError(t, err)
		r.scheduleActivity(id, name, input, at)
		failed := &historypb.ActivityTaskFailedEventAttributes{ScheduledEventId: id, Failure: &failurepb.Failure{
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: string(failure)}}}}
		r.readEvent(&historypb.HistoryEvent{EventId: id + 1, EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
			Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{ActivityTaskFailedEventAttributes: failed}})
		return r.acted["a"]
	}
	require.Zero(t, call(1, "fake.do", 0, activities.Asks))
	require.Zero(t, call(3, "fake.do.plan", 0, activities.Refused))
	first := call(5, "fake.do", 0, activities.Refused)
	require.Equal(t, at, first)
	require.Equal(t, first, call(7, "fake.do", 0, activities.ActionDenied), "it is one step")
	for i, kept := range []activities.ErrorType{activities.Denied, activities.StaleApproval, activities.Unproved,
		activities.Fenced} {
		require.Zero(t, call(int64(9+2*i), "fake.do", 2+i, kept), kept)
	}
}
