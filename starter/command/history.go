package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// fromHistory reads a task's state out of its history, for when no worker answers and there is no report. It knows what
// was scheduled and what came back; not what a gate shows, nor what is parked.
func (c *connection) fromHistory(ctx context.Context, t taskRun) (workflows.State, error) {
	r := &historyReader{
		state:     workflows.State{Task: t.ID, Name: t.Name, Agent: t.Agent, Phase: workflows.Compiling, Steps: []workflows.StepView{}},
		converter: converter.GetDefaultDataConverter(),
		scheduled: map[int64]*scheduled{}, steps: map[string]int{}, undos: map[string]int{},
	}
	events := c.GetWorkflowHistory(ctx, t.ID, t.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return r.state, fmt.Errorf("history of task %s: %w", t.ID, err)
		}
		r.read(event)
	}
	if t.closed() {
		r.state.Phase = workflows.Closed
	}
	return r.state, nil
}

// historyReader builds a state event by event.
type historyReader struct {
	state     workflows.State
	converter converter.DataConverter
	scheduled map[int64]*scheduled
	steps     map[string]int // index into state.Steps
	undos     map[string]int // index into state.Report.Steps
}

// scheduled is an activity of a step that was scheduled.
type scheduled struct {
	activity, step, kind string // kind: compile, plan, forward, undo
}

func (r *historyReader) read(event *historypb.HistoryEvent) {
	at := event.GetEventTime().AsTime()
	switch event.EventType {
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		a := event.GetActivityTaskScheduledEventAttributes()
		r.schedule(event.EventId, a.GetActivityType().GetName(), a.GetInput(), at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := event.GetActivityTaskCompletedEventAttributes()
		r.complete(r.scheduled[a.GetScheduledEventId()], a.GetResult(), at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		a := event.GetActivityTaskFailedEventAttributes()
		r.fail(r.scheduled[a.GetScheduledEventId()], failureText(a.GetFailure()), workflows.StepFailed, at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		a := event.GetActivityTaskTimedOutEventAttributes()
		r.fail(r.scheduled[a.GetScheduledEventId()], failureText(a.GetFailure()), workflows.StepFailed, at)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		a := event.GetActivityTaskCanceledEventAttributes()
		r.fail(r.scheduled[a.GetScheduledEventId()], "canceled", workflows.Canceled, at)
	}
}

func (r *historyReader) schedule(id int64, activity string, input *commonpb.Payloads, at time.Time) {
	if activity == workflows.CompileActivity {
		r.scheduled[id] = &scheduled{activity: activity, kind: "compile"}
		return
	}
	var forward activities.Forward // Backward's entry stands at the same place
	if r.converter.FromPayloads(input, &forward) != nil || forward.Entry.Step == "" {
		return
	}
	s := &scheduled{activity: activity, step: forward.Entry.Step}
	switch {
	case activity == forward.Entry.UndoType:
		s.kind = "undo"
		r.undo(forward.Entry).State = string(compensations.Running)
		r.state.Phase = workflows.Unwinding
	case strings.HasSuffix(activity, ".plan"):
		s.kind = "plan"
		r.begin(forward.Entry, workflows.Planning, at)
	case activity == forward.Entry.Action:
		s.kind = "forward"
		r.begin(forward.Entry, workflows.Running, at)
	default:
		return
	}
	r.scheduled[id] = s
}

func (r *historyReader) complete(s *scheduled, result *commonpb.Payloads, at time.Time) {
	if s == nil {
		return
	}
	switch s.kind {
	case "compile":
		var compiled task.Compiled
		if r.converter.FromPayloads(result, &compiled) != nil {
			return
		}
		r.state.Name, r.state.Agent, r.state.Phase = compiled.Name, compiled.Agent, workflows.Forward
		for _, step := range compiled.Steps {
			r.steps[step.ID] = len(r.state.Steps)
			r.state.Steps = append(r.state.Steps, workflows.StepView{
				ID: step.ID, Name: step.Name, Uses: step.Uses, Host: step.Place.Host, State: workflows.NotStarted,
			})
		}
	case "forward":
		var done activities.Result
		_ = r.converter.FromPayloads(result, &done)
		v := r.step(s.step)
		v.State, v.Summary, v.Notes, v.Ended = workflows.Done, done.Summary, done.Notes, at
	case "undo":
		var undone activities.Undone
		_ = r.converter.FromPayloads(result, &undone)
		u := r.undo(activities.Entry{Step: s.step})
		u.Outcome, u.Observed, u.Losses, u.Drift, u.Took = undone.Outcome, undone.Observed, undone.Losses, undone.Drift, undone.Took
		u.State = string(compensations.Settled)
		if !undone.Outcome.Settles() {
			u.State, u.Reason = string(compensations.Parked), undone.Observed
		}
	}
}

func (r *historyReader) fail(s *scheduled, why string, state workflows.StepState, at time.Time) {
	if s == nil {
		return
	}
	switch s.kind {
	case "plan", "forward":
		v := r.step(s.step)
		v.State, v.Ended = state, at
		if state == workflows.StepFailed {
			v.Error = why
		}
	case "undo":
		u := r.undo(activities.Entry{Step: s.step})
		u.State, u.Reason = string(compensations.Pending), why
	}
}

func (r *historyReader) begin(e activities.Entry, state workflows.StepState, at time.Time) {
	v := r.step(e.Step)
	v.Uses, v.State = e.Action, state
	if v.Began.IsZero() {
		v.Began = at
	}
}

// step is the view of a step, made where the compiled task did not name it.
func (r *historyReader) step(id string) *workflows.StepView {
	i, known := r.steps[id]
	if !known {
		i = len(r.state.Steps)
		r.steps[id] = i
		r.state.Steps = append(r.state.Steps, workflows.StepView{ID: id})
	}
	return &r.state.Steps[i]
}

// undo is the report of a step's undo, made at its first.
func (r *historyReader) undo(e activities.Entry) *compensations.StepReport {
	if r.state.Report == nil {
		r.state.Report = &compensations.Report{Task: r.state.Task, Status: compensations.Open}
	}
	i, known := r.undos[e.Step]
	if !known {
		i = len(r.state.Report.Steps)
		r.undos[e.Step] = i
		r.state.Report.Steps = append(r.state.Report.Steps, compensations.StepReport{Step: e.Step, Action: e.Action})
	}
	return &r.state.Report.Steps[i]
}

// failureText is the innermost message, as it names what went wrong.
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
