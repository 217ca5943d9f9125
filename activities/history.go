package activities

import (
	"encoding/json"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
)

// Trace is what the history of one run alone tells of the steps that it has scheduled.
type Trace struct {
	// Entries are those of all forwards that were scheduled, in order, each once.
	Entries []Entry
	// Done are the results of the forwards that have completed, and Settled what the undos did that settled their step, by
	// token.
	Done    map[string]Result
	Settled map[string]Undone
	// Attempts are all undos that came to an end, in order.
	Attempts []Attempt
}

// Attempt is an undo that came to an end.
type Attempt struct {
	// Event is the id of the event that tells the end.
	Event int64
	Token string
	// Undone is what it returned; nil where it failed. Unserved says that no worker had taken it, Canceled that it was taken
	// back.
	Undone   *Undone
	Unserved bool
	Canceled bool
}

// EntriesIn are the entries of a TraceOf.
func EntriesIn(events []*historypb.HistoryEvent, dc converter.DataConverter) ([]Entry, error) {
	t, err := TraceOf(events, dc)
	return t.Entries, err
}

// TraceOf reads a history. A forward is told by the entry among its arguments: in a Forward, in a type that embeds one, or as it is.
// Activities that are no call of an action are passed over; where dc cannot read an argument (it is encrypted, say, and dc lacks the
// codec), whether it is one cannot be known, and that is an error.
func TraceOf(events []*historypb.HistoryEvent, dc converter.DataConverter) (Trace, error) {
	t := Trace{Done: map[string]Result{}, Settled: map[string]Undone{}}
	seen := map[string]bool{}
	forwards, undos := map[int64]Forward{}, map[int64]string{} // by the event that scheduled them
	for _, event := range events {
		if completed := event.GetActivityTaskCompletedEventAttributes(); completed != nil {
			forward, undo := forwards[completed.ScheduledEventId], undos[completed.ScheduledEventId]
			if err := t.completed(event.EventId, completed, forward, undo, dc); err != nil {
				return t, fmt.Errorf("event %d: %w", event.EventId, err)
			}
			continue
		}
		if a, ended := endedWithout(event, undos); ended {
			t.Attempts = append(t.Attempts, a)
			continue
		}
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		activityType := scheduled.GetActivityType().GetName()
		f, err := callIn(scheduled.GetInput(), activityType, dc)
		switch e := f.Entry; {
		case err != nil:
			return t, fmt.Errorf("event %d, argument of %s: %w", event.EventId, activityType, err)
		case f.isForwardOf(activityType):
			if activityType == e.Action {
				forwards[event.EventId] = f
			}
			if !seen[e.Token] {
				seen[e.Token] = true
				t.Entries = append(t.Entries, e)
			}
		case e.Token != "" && (activityType == e.UndoType || activityType == e.Action+".reset"):
			undos[event.EventId] = e.Token
		}
	}
	return t, nil
}

// endedWithout is the undo that an event ends without a result.
func endedWithout(event *historypb.HistoryEvent, undos map[int64]string) (Attempt, bool) {
	failed, canceled := event.GetActivityTaskFailedEventAttributes(), event.GetActivityTaskCanceledEventAttributes()
	timedOut := event.GetActivityTaskTimedOutEventAttributes()
	token := undos[max(failed.GetScheduledEventId(), canceled.GetScheduledEventId(), timedOut.GetScheduledEventId())] // one at most is there
	return Attempt{
		Event: event.EventId, Token: token, Canceled: canceled != nil,
		Unserved: timedOut.GetFailure().GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START,
	}, token != ""
}

func (t *Trace) completed(event int64, c *historypb.ActivityTaskCompletedEventAttributes, forward Forward, undo string, dc converter.DataConverter) error {
	switch {
	case forward.Entry.Token != "":
		var r Result
		if err := dc.FromPayloads(c.Result, &r); err != nil && forward.Step.ID != "" { // else it is no Action's, and returns what it likes
			return fmt.Errorf("result of a step: %w", err)
		}
		t.Done[forward.Entry.Token] = r
	case undo != "":
		var u Undone
		if err := dc.FromPayloads(c.Result, &u); err != nil {
			return fmt.Errorf("result of an undo: %w", err)
		}
		t.Attempts = append(t.Attempts, Attempt{Event: event, Token: undo, Undone: &u})
		if u.Outcome.Settles() {
			t.Settled[undo] = u
		}
	}
	return nil
}

// callIn reads the argument of an activity that makes it the call of an action; what is certainly none is an empty one.
func callIn(input *commonpb.Payloads, activityType string, dc converter.DataConverter) (f Forward, err error) {
	for _, argument := range input.GetPayloads() {
		if f, err = forwardIn(argument, dc); err != nil || f.Entry.Token != "" && f.Entry.isNamedBy(activityType) {
			return f, err
		}
	}
	return Forward{}, nil
}

// isNamedBy says that an activity of this type acts on the entry.
func (e Entry) isNamedBy(activityType string) bool {
	return activityType == e.Action || activityType == e.Action+".plan" || activityType == e.UndoType || activityType == e.Action+".reset"
}

// forwardIn reads an argument; what certainly holds no entry is an empty one. Of a Backward it reads the entry.
func forwardIn(argument *commonpb.Payload, dc converter.DataConverter) (f Forward, err error) {
	var raw json.RawMessage
	if err := dc.FromPayload(argument, &raw); errors.Is(err, converter.ErrTypeNotImplementProtoMessage) {
		return f, nil // a protocol buffer
	} else if err != nil {
		return f, fmt.Errorf("it cannot be read; the data converter must be that of the worker which ran the task: %w", err)
	}
	var looks struct {
		Entry         json.RawMessage `json:"entry"`
		OriginalRunID json.RawMessage `json:"originalRunId"`
		Decision      json.RawMessage `json:"decision"`
		Token         json.RawMessage `json:"token"`
		Undo          json.RawMessage `json:"undo"`
	}
	_ = json.Unmarshal(raw, &looks) // what is no object looks like nothing
	var into any
	switch {
	case looks.Entry != nil && (looks.OriginalRunID != nil || looks.Decision != nil):
		into = &f
	case looks.Token != nil && looks.Undo != nil:
		into = &f.Entry
	default:
		return f, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return f, fmt.Errorf("it has the form of a step's call, which this version does not understand: %w", err)
	}
	return f, nil
}

// isForwardOf holds for the argument of NAME and NAME.plan only.
func (f Forward) isForwardOf(activityType string) bool {
	return f.Entry.Token != "" && (activityType == f.Entry.Action || activityType == f.Entry.Action+".plan")
}
