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

// TraceOf reads a history. Activities that are no call of an action are passed over; where dc cannot read an argument (it
// is encrypted, say, and dc lacks the codec), whether it is one cannot be known, and that is an error.
func TraceOf(events []*historypb.HistoryEvent, dc converter.DataConverter) (Trace, error) {
	t := Trace{Done: map[string]Result{}, Settled: map[string]Undone{}}
	seen := map[string]bool{}
	forwards, undos := map[int64]string{}, map[int64]string{} // tokens by the event that scheduled them
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
		if len(scheduled.GetInput().GetPayloads()) != 1 {
			continue
		}
		activityType := scheduled.ActivityType.GetName()
		f, err := forwardIn(scheduled.Input.Payloads[0], dc)
		switch e := f.Entry; {
		case err != nil:
			return t, fmt.Errorf("event %d, argument of %s: %w", event.EventId, activityType, err)
		case f.isForwardOf(activityType):
			if activityType == e.Action {
				forwards[event.EventId] = e.Token
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

func (t *Trace) completed(event int64, c *historypb.ActivityTaskCompletedEventAttributes, forward, undo string, dc converter.DataConverter) error {
	switch {
	case forward != "":
		var r Result
		if err := dc.FromPayloads(c.Result, &r); err != nil {
			return fmt.Errorf("result of a step: %w", err)
		}
		t.Done[forward] = r
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

// forwardIn reads an argument; what is certainly no call of an action is an empty one. Of a Backward it reads the entry.
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
	}
	_ = json.Unmarshal(raw, &looks) // what is no object looks like nothing
	if looks.Entry == nil || looks.OriginalRunID == nil && looks.Decision == nil {
		return f, nil
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, fmt.Errorf("it has the form of a step's call, which this version does not understand: %w", err)
	}
	return f, nil
}

// isForwardOf holds for the argument of NAME and NAME.plan only: an undo's argument has no OriginalRunID.
func (f Forward) isForwardOf(activityType string) bool {
	return f.OriginalRunID != "" && f.Entry.Token != "" &&
		(activityType == f.Entry.Action || activityType == f.Entry.Action+".plan")
}
