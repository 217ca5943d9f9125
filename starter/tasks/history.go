package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// readHistory rebuilds a task's state from its history, for when no worker answers and there is no
// report. It knows what was scheduled and what came back; not what a gate shows, nor what is
// parked.
func (c *Client) readHistory(ctx context.Context, t Run) (protocol.State, error) {
	r, err := c.replayHistory(ctx, t)
	for i, v := range r.state.Steps {
		r.state.Steps[i].Outputs = protocol.CutOutputs(r.outputs[v.ID])
	}
	if r.state.Phase == protocol.Forward && !r.undoing() {
		r.state.Report = nil
	}
	return r.state, err
}

// undoing says that an undo has begun and is not over.
func (r *historyReader) undoing() bool {
	return r.state.Report != nil && slices.ContainsFunc(r.state.Report.Steps, func(u compensations.StepReport) bool {
		return compensations.UndoState(u.State) != compensations.Settled
	})
}

// addHistory completes the steps of a task by what only its history has: outputs, how far each step
// had come, those that were done before the task continued as new, and the order of the file.
func (c *Client) addHistory(ctx context.Context, t Run, s *protocol.State) error {
	r, err := c.replayHistory(ctx, t)
	if err != nil {
		return err
	}
	place := map[string]int{}
	for n, h := range r.state.Steps {
		place[h.ID] = n
		h.Outputs = protocol.CutOutputs(r.outputs[h.ID])
		i := slices.IndexFunc(s.Steps, func(v protocol.StepView) bool { return v.ID == h.ID })
		if i < 0 {
			if h.State == protocol.Done || h.State == protocol.RolledBack {
				s.Steps = append(s.Steps, h)
			}
			continue
		}
		v := &s.Steps[i]
		v.Name, v.Host = cmp.Or(h.Name, v.Name), cmp.Or(h.Host, v.Host)
		if h.Outputs != nil {
			v.Outputs = h.Outputs
		}
		if v.State == "" {
			v.State, v.Error = h.State, h.Error
		}
		if h.State == v.State {
			v.Began, v.Ended, v.Waited = h.Began, h.Ended, h.Waited
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b protocol.StepView) int { return cmp.Compare(place[a.ID], place[b.ID]) })
	return nil
}

func (c *Client) replayHistory(ctx context.Context, t Run) (*historyReader, error) {
	var unreadable error
	r := newHistoryReader(collecting{c.DataConverter(), &unreadable})
	r.state.Task, r.state.Name, r.state.Agent = t.ID, t.Name, t.Agent
	runs, err := c.openHistories(ctx, t)
	if err != nil {
		return r, fmt.Errorf("history of task %s: %w", t.ID, err)
	}
	for _, run := range runs {
		clear(r.scheduled) // event ids begin anew in each run
		r.readEvent(run.first)
		for run.rest.HasNext() {
			event, err := run.rest.Next()
			if err != nil {
				return r, fmt.Errorf("history of task %s: %w", t.ID, err)
			}
			r.readEvent(event)
		}
	}
	switch {
	case t.Closed():
		r.state.Phase = protocol.Closed
	case r.state.Phase == "":
		r.state.Phase = protocol.NotBegun
	}
	if unreadable != nil {
		return r, fmt.Errorf("history of task %s: %w", t.ID, unreadable)
	}
	return r, nil
}

// openHistory is the history of a run, of which the first event has been read.
type openHistory struct {
	first *historypb.HistoryEvent
	rest  client.HistoryEventIterator
}

// openHistories opens those of a task's runs up to this one, each of which was continued as the
// next. Those that the server does not keep any more are left out.
func (c *Client) openHistories(ctx context.Context, t Run) (all []openHistory, err error) {
	for id := t.RunID; id != ""; {
		h := openHistory{rest: c.GetWorkflowHistory(ctx, t.ID, id, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)}
		h.first, err = h.rest.Next()
		if _, gone := errors.AsType[*serviceerror.NotFound](err); gone && id != t.RunID {
			break
		}
		if err != nil {
			return nil, err
		}
		all = append(all, h)
		id = h.first.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
	}
	slices.Reverse(all)
	return all, nil
}

// historyReader builds a state event by event.
type historyReader struct {
	state     protocol.State
	converter converter.DataConverter
	scheduled map[int64]*activity
	steps     map[string]int // index into state.Steps
	undos     map[string]int // index into state.Report.Steps, of steps that have not run again since
	outputs   map[string]map[string]any
	planned   map[string]*activities.Change
	forwards  map[string]activities.Forward
	acted     map[string]time.Time // when the forward was scheduled of a step that was not kept from acting
	gates     map[string]time.Time // when a step came to its gate
	trace     []Event
}

func newHistoryReader(dc converter.DataConverter) *historyReader {
	return &historyReader{
		state: protocol.State{Steps: []protocol.StepView{}}, converter: dc,
		scheduled: map[int64]*activity{}, steps: map[string]int{}, undos: map[string]int{},
		outputs: map[string]map[string]any{}, planned: map[string]*activities.Change{},
		forwards: map[string]activities.Forward{}, acted: map[string]time.Time{}, gates: map[string]time.Time{},
	}
}

// activity is one that was scheduled for a step.
type activity struct {
	name, step, kind string // kind: plan, forward, undo
	limits           compensations.Limits
	traced
}

func (r *historyReader) readEvent(event *historypb.HistoryEvent) {
	r.readState(event)
	r.traceEvent(event)
}

func (r *historyReader) readState(event *historypb.HistoryEvent) {
	at := event.GetEventTime().AsTime()
	switch event.EventType {
	case enumspb.EVENT_TYPE_MARKER_RECORDED:
		r.readCompiled(event.GetMarkerRecordedEventAttributes())
	case enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
		// The task says how many undos are to come when it begins to unwind, not when a part of it is
		// rolled back.
		set := event.GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
		if pending, unwinds := set[protocol.AttributePending.GetName()]; unwinds {
			r.state.Phase = protocol.Unwinding
			_ = converter.GetDefaultDataConverter().FromPayload(pending, &r.state.PendingUndos)
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		a := event.GetActivityTaskScheduledEventAttributes()
		r.scheduleActivity(event.EventId, a.GetActivityType().GetName(), a.GetInput(), at)
		if s := r.scheduled[event.EventId]; s != nil {
			s.limits = limitsOf(a)
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := event.GetActivityTaskCompletedEventAttributes()
		r.completeActivity(r.scheduled[a.GetScheduledEventId()], a.GetResult(), at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		a := event.GetActivityTaskFailedEventAttributes()
		if a.GetFailure().GetApplicationFailureInfo().GetType() == string(activities.NotYet) {
			break // the task waits, and schedules it again
		}
		r.noteKept(r.scheduled[a.GetScheduledEventId()], a.GetFailure())
		r.failActivity(r.scheduled[a.GetScheduledEventId()], failureText(a.GetFailure()), protocol.StepFailed, at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		a := event.GetActivityTaskTimedOutEventAttributes()
		if s := r.scheduled[a.GetScheduledEventId()]; s != nil {
			r.failActivity(s, failureReason(a.GetFailure(), s.limits), protocol.StepFailed, at)
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		a := event.GetActivityTaskCanceledEventAttributes()
		r.failActivity(r.scheduled[a.GetScheduledEventId()], "canceled", protocol.Canceled, at)
	}
}

// readCompiled reads the steps from the marker of the local activity that compiles the task, those
// that a session is given, or a step that a person has corrected.
func (r *historyReader) readCompiled(marker *historypb.MarkerRecordedEventAttributes) {
	var compiled task.Compiled
	if marker.GetMarkerName() != "LocalActivity" ||
		r.converter.FromPayloads(marker.GetDetails()["result"], &compiled) != nil || len(compiled.Steps) == 0 {
		return
	}
	r.state.Name, r.state.Agent, r.state.Phase = compiled.Name, compiled.Agent, protocol.Forward
	for _, step := range compiled.Steps {
		v := r.stepView(step.ID)
		v.Name, v.Uses, v.Host = step.Name, step.Uses, step.Place.Host
		if v.State == "" {
			v.State = protocol.NotStarted
		}
	}
	r.state.Total = len(r.state.Steps)
}

func (r *historyReader) scheduleActivity(id int64, name string, input *commonpb.Payloads, at time.Time) {
	var forward activities.Forward // also decodes a Backward: the entry has the same name in both
	if r.converter.FromPayloads(input, &forward) != nil || forward.Entry.Step == "" {
		return
	}
	s := &activity{name: name, step: forward.Entry.Step, traced: traced{try: forward.Entry.Generation}}
	switch {
	case name == forward.Entry.UndoType:
		s.kind = "undo"
		r.undoReport(forward.Entry).State = string(compensations.Running)
	case strings.HasSuffix(name, ".plan"):
		s.kind = "plan"
		r.beginStep(forward.Entry, protocol.Planning, at)
	case name == forward.Entry.Action:
		s.kind = "forward"
		if r.state.Phase == "" {
			r.state.Phase = protocol.Forward
		}
		delete(r.undos, s.step)
		r.beginStep(forward.Entry, protocol.Running, at)
		if r.acted[s.step].IsZero() {
			r.acted[s.step] = at
		}
	default:
		return
	}
	if s.kind != "undo" {
		r.forwards[s.step] = forward
	}
	r.scheduled[id] = s
}

func (r *historyReader) completeActivity(s *activity, result *commonpb.Payloads, at time.Time) {
	if s == nil {
		return
	}
	switch s.kind {
	case "plan": // a step that nobody needs to approve is scheduled at once
		r.stepView(s.step).State = protocol.AtGate
		r.gates[s.step] = at
		var change activities.Change
		if r.converter.FromPayloads(result, &change) == nil {
			r.planned[s.step] = &change
		}
	case "forward":
		var done activities.Result
		_ = r.converter.FromPayloads(result, &done)
		v := r.stepView(s.step)
		v.State, v.Summary, v.Notes, v.Ended = protocol.Done, done.Summary, done.Notes, at
		r.outputs[s.step] = done.Outputs
		r.state.Done++
	case "undo":
		var undone activities.Undone
		_ = r.converter.FromPayloads(result, &undone)
		u := r.undoReport(activities.Entry{Step: s.step})
		u.Outcome, u.Observed, u.Losses, u.Drift, u.Took = undone.Outcome, undone.Observed, undone.Losses, undone.Drift,
			undone.Took
		u.State = string(compensations.Settled)
		switch {
		case !undone.Outcome.Settles():
			u.State, u.Reason = string(compensations.Parked), undone.Observed
		case r.state.Phase == protocol.Unwinding:
			r.state.PendingUndos = max(0, r.state.PendingUndos-1)
		case r.state.Phase == protocol.Forward: // the task goes on without it
			r.rollBackStep(s.step)
		}
	}
}

// noteKept notes that a forward was kept from acting: its worker counts it among nothing that was done.
func (r *historyReader) noteKept(s *activity, f *failurepb.Failure) {
	if s == nil || s.kind != "forward" {
		return
	}
	if activities.ErrorType(f.GetApplicationFailureInfo().GetType()).KeptFromActing() {
		delete(r.acted, s.step)
	}
}

func (r *historyReader) rollBackStep(id string) {
	v := r.stepView(id)
	if v.State == protocol.Done {
		r.state.Done--
	}
	v.State = protocol.RolledBack
}

func (r *historyReader) failActivity(s *activity, why string, state protocol.StepState, at time.Time) {
	if s == nil {
		return
	}
	switch s.kind {
	case "plan", "forward":
		v := r.stepView(s.step)
		v.State, v.Ended = state, at
		if state == protocol.StepFailed {
			v.Error = why
		}
	case "undo":
		u := r.undoReport(activities.Entry{Step: s.step})
		u.State, u.Reason = string(compensations.Pending), why
	}
}

func (r *historyReader) beginStep(e activities.Entry, state protocol.StepState, at time.Time) {
	v := r.stepView(e.Step)
	if e.Generation > max(1, v.Try) {
		if v.State == protocol.Done {
			r.state.Done--
		}
		delete(r.outputs, e.Step)
		delete(r.planned, e.Step)
		delete(r.acted, e.Step)
		*v = v.Next(e.Generation)
	}
	if v.State == protocol.AtGate {
		v.Waited += at.Sub(r.gates[e.Step])
	}
	v.Uses, v.State = e.Action, state
	v.Error, v.Ended = "", time.Time{} // those of a call that was not the last: one that found out that the step asks, say
	if v.Began.IsZero() {
		v.Began = at
	}
}

// stepView returns the view of a step, and adds one if the compiled task did not name the step.
func (r *historyReader) stepView(id string) *protocol.StepView {
	i, known := r.steps[id]
	if !known {
		i = len(r.state.Steps)
		r.steps[id] = i
		r.state.Steps = append(r.state.Steps, protocol.StepView{ID: id})
	}
	return &r.state.Steps[i]
}

// undoReport returns the report of a step's undo, and adds one at its first.
func (r *historyReader) undoReport(e activities.Entry) *compensations.StepReport {
	if r.state.Report == nil {
		r.state.Report = &compensations.Report{Task: r.state.Task, Status: compensations.Open}
	}
	i, known := r.undos[e.Step]
	if !known {
		i = len(r.state.Report.Steps)
		r.undos[e.Step] = i
		r.state.Report.Steps = append(r.state.Report.Steps,
			compensations.StepReport{Step: e.Step, Action: e.Action, Try: e.Generation})
	}
	return &r.state.Report.Steps[i]
}

// limitsOf are the limits of an activity.
func limitsOf(a *historypb.ActivityTaskScheduledEventAttributes) compensations.Limits {
	return compensations.Limits{Attempt: a.GetStartToCloseTimeout().AsDuration(),
		Heartbeat: a.GetHeartbeatTimeout().AsDuration()}
}

// failureReason is why an activity, or an attempt of it, has failed.
func failureReason(f *failurepb.Failure, limits compensations.Limits) string {
	if f.GetTimeoutFailureInfo() != nil {
		return limits.Reason(timeoutOf(f))
	}
	return failureText(f)
}

// failureText is the innermost message: the one that names what went wrong.
func failureText(f *failurepb.Failure) string {
	text := ""
	for ; f != nil; f = f.GetCause() {
		if f.GetMessage() != "" {
			text = f.GetMessage()
		}
		if t := f.GetApplicationFailureInfo().GetType(); t != "" {
			return t + ": " + f.GetMessage()
		}
	}
	return text
}

// timeoutOf is the error of an activity that has timed out, with that of its last attempt before.
func timeoutOf(f *failurepb.Failure) error {
	kind := f.GetTimeoutFailureInfo().GetTimeoutType()
	if last := failureText(f.GetCause()); last != "" {
		return temporal.NewTimeoutError(kind, errors.New(last))
	}
	return temporal.NewTimeoutError(kind, nil)
}
