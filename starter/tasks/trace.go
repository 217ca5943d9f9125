package tasks

import (
	"context"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Event is one thing that has happened in a task, as its history tells. Secrets are masked there
// already.
type Event struct {
	At time.Time `json:"at"`
	// What is began; request (of an agent or a person, by its Name) or refused; plan, gate, forward or
	// undo, and done, failed or canceled with the same Name; cancel; or ended.
	What string `json:"what"`
	// Name is that of the request, or of the activity: plan, forward or undo.
	Name string `json:"name,omitempty"`
	// Request is the id of a request that has one.
	Request string `json:"request,omitempty"`
	Step    string `json:"step,omitempty"`
	Action  string `json:"action,omitempty"`
	// Try is which try of the step it is, where it is not the first, and Attempts how often it was
	// attempted, if more than once.
	Try      int `json:"try,omitempty"`
	Attempts int `json:"attempts,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds,omitempty"`
	// Who is a claim where a signal has made it.
	Who string `json:"who,omitempty"`
	// Text is what was done, observed or asked for, or why it failed.
	Text string `json:"text,omitempty"`
	// Outcome and Losses are those of an undo.
	Outcome string   `json:"outcome,omitempty"`
	Losses  []string `json:"losses,omitempty"`
}

// Trace lists what has happened in a task, the earliest first.
func (c *Client) Trace(ctx context.Context, t Run) ([]Event, error) {
	r, err := c.replayHistory(ctx, t)
	return r.trace, err
}

// traced is what is remembered of an activity until it has ended.
type traced struct {
	began    time.Time
	try      int
	attempts int
}

// traceEvent adds to the trace what an event tells, once the state knows it.
func (r *historyReader) traceEvent(event *historypb.HistoryEvent) {
	at := event.GetEventTime().AsTime()
	switch event.EventType {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		if event.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId() == "" {
			r.tell(Event{At: at, What: "began"})
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
		asked := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest()
		if name := asked.GetInput().GetName(); name != protocol.UpdateAwait {
			r.traceRequest(Event{At: at, Name: name, Request: asked.GetMeta().GetUpdateId()}, asked.GetInput().GetArgs())
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
		a := event.GetWorkflowExecutionUpdateCompletedEventAttributes()
		if failure := a.GetOutcome().GetFailure(); failure != nil {
			r.tell(Event{At: at, What: "refused", Request: a.GetMeta().GetUpdateId(), Text: failureText(failure)})
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
		a := event.GetWorkflowExecutionSignaledEventAttributes()
		r.traceRequest(Event{At: at, Name: a.GetSignalName()}, a.GetInput())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
		r.tell(Event{At: at, What: "cancel"})
	case enumspb.EVENT_TYPE_TIMER_STARTED:
		var summary string
		_ = r.converter.FromPayload(event.GetUserMetadata().GetSummary(), &summary)
		if step, isGate := protocol.GateOf(summary); isGate {
			r.tell(Event{At: at, What: "gate", Step: step})
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		how := strings.TrimPrefix(event.EventType.String(), "WorkflowExecution")
		r.tell(Event{At: at, What: "ended", Text: strings.ToLower(how)})
	default:
		r.traceActivity(event, at)
	}
}

func (r *historyReader) tell(e Event) { r.trace = append(r.trace, e) }

// traceRequest describes what was asked for, without what steps are given.
func (r *historyReader) traceRequest(e Event, arguments *commonpb.Payloads) {
	var asked struct {
		Name, Text, To, Step, Do, Who, Why string
	}
	_ = r.converter.FromPayloads(arguments, &asked) // not all have such an argument
	e.What, e.Step, e.Who = "request", asked.Step, asked.Who
	var said []string
	for _, each := range []string{asked.Name, asked.Text, asked.To, asked.Do, asked.Why} {
		if each != "" {
			said = append(said, each)
		}
	}
	e.Text = strings.Join(said, ": ")
	r.tell(e)
}

// traceActivity describes the activities of steps.
func (r *historyReader) traceActivity(event *historypb.HistoryEvent, at time.Time) {
	switch event.EventType {
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		if a := r.scheduled[event.EventId]; a != nil {
			a.began = at
			r.tell(a.event(at, a.kind))
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		s := event.GetActivityTaskStartedEventAttributes()
		if a := r.scheduled[s.GetScheduledEventId()]; a != nil {
			a.attempts = int(s.GetAttempt())
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		r.traceEnd(event.GetActivityTaskCompletedEventAttributes().GetScheduledEventId(), at, "done")
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		r.traceEnd(event.GetActivityTaskFailedEventAttributes().GetScheduledEventId(), at, "failed")
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		r.traceEnd(event.GetActivityTaskTimedOutEventAttributes().GetScheduledEventId(), at, "failed")
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		r.traceEnd(event.GetActivityTaskCanceledEventAttributes().GetScheduledEventId(), at, "canceled")
	}
}

func (a *activity) event(at time.Time, what string) Event {
	e := Event{At: at, What: what, Name: a.kind, Step: a.step, Action: a.name}
	if a.try > 1 {
		e.Try = a.try
	}
	return e
}

// traceEnd describes how an activity has ended, as the state knows by now.
func (r *historyReader) traceEnd(scheduled int64, at time.Time, what string) {
	a := r.scheduled[scheduled]
	if a == nil {
		return
	}
	e := a.event(at, what)
	e.Seconds = at.Sub(a.began).Seconds()
	if a.attempts > 1 {
		e.Attempts = a.attempts
	}
	v := r.stepView(a.step)
	switch {
	case a.kind == "undo":
		i, isKnown := r.undos[a.step]
		if !isKnown { // the step has run again since
			break
		}
		u := r.state.Report.Steps[i]
		e.Outcome, e.Losses, e.Text = string(u.Outcome), u.Losses, u.Observed
		if what == "failed" {
			e.Outcome, e.Text = "", u.Reason
		}
	case what == "failed":
		e.Text = v.Error
	case a.kind == "plan" && r.planned[a.step] != nil:
		e.Text = r.planned[a.step].Summary
	case a.kind == "forward":
		e.Text = v.Summary
	}
	r.tell(e)
}
