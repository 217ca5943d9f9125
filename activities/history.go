package activities

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
)

// Trace is what the history of a run says about the steps that the run scheduled.
type Trace struct {
	// Entries are the entries of all scheduled forwards, in order, each once.
	Entries []Entry
	// Done are the results of the completed forwards, and Settled those of the undos that settled
	// their step, by token.
	Done    map[string]Result
	Settled map[string]Undone
	// Times are those of the completed forwards, by token.
	Times map[string]Span
	// Attempts are all undos that ended, in order.
	Attempts []Attempt
	// Forced are the digests of the drift that undos were to overwrite, by token, in order.
	Forced map[string][]Digest
}

// Span is when something was scheduled, and when it had ended.
type Span struct{ Began, Ended time.Time }

// Attempt is an undo that ended.
type Attempt struct {
	// Event is the id of the event that ended it.
	Event int64
	Token string
	// Undone is what it returned; nil if it failed. Unserved means that no worker took it, Canceled
	// that it was recalled, Unproved that its worker takes only signed decisions.
	Undone   *Undone
	Unserved bool
	Canceled bool
	Unproved bool
}

// TraceOf reads a history. It recognizes a forward by the entry among its arguments: in a Forward,
// in a type that embeds one, or by itself. It skips activities that are not calls of an action. An
// argument that dc cannot decode (because it is encrypted and dc lacks the codec, for example) is
// an error, because it may hold an entry.
func TraceOf(events []*historypb.HistoryEvent, dc converter.DataConverter) (Trace, error) {
	t := Trace{Done: map[string]Result{}, Settled: map[string]Undone{}, Forced: map[string][]Digest{},
		Times: map[string]Span{}}
	seen, began := map[string]bool{}, map[int64]time.Time{}
	forwards, undos := map[int64]Forward{}, map[int64]string{} // by the id of the event that scheduled them
	for _, event := range events {
		if completed := event.GetActivityTaskCompletedEventAttributes(); completed != nil {
			forward, undo := forwards[completed.ScheduledEventId], undos[completed.ScheduledEventId]
			if err := t.addResult(event.EventId, completed, forward, undo, dc); err != nil {
				return t, fmt.Errorf("event %d: %w", event.EventId, err)
			}
			if token := forward.Entry.Token; token != "" {
				t.Times[token] = Span{began[completed.ScheduledEventId], event.GetEventTime().AsTime()}
			}
			continue
		}
		if a, ended := failedUndo(event, undos); ended {
			t.Attempts = append(t.Attempts, a)
			continue
		}
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		activityType := scheduled.GetActivityType().GetName()
		call, err := readCall(scheduled.GetInput(), activityType, dc)
		switch f, e := call.Forward, call.Entry; {
		case err != nil:
			return t, fmt.Errorf("event %d, argument of %s: %w", event.EventId, activityType, err)
		case f.isForwardOf(activityType):
			if activityType == e.Action {
				forwards[event.EventId], began[event.EventId] = f, event.GetEventTime().AsTime()
			}
			if !seen[e.Token] {
				seen[e.Token] = true
				t.Entries = append(t.Entries, e)
			}
		case e.Token != "" && (activityType == e.UndoType || activityType == e.Action+".reset"):
			undos[event.EventId] = e.Token
			if call.Decision.Force != "" {
				t.Forced[e.Token] = append(t.Forced[e.Token], call.Decision.Force)
			}
		}
	}
	return t, nil
}

// failedUndo returns the undo that an event ended without a result, if any.
func failedUndo(event *historypb.HistoryEvent, undos map[int64]string) (Attempt, bool) {
	failed, canceled := event.GetActivityTaskFailedEventAttributes(), event.GetActivityTaskCanceledEventAttributes()
	timedOut := event.GetActivityTaskTimedOutEventAttributes()
	// at most one of them is set
	token := undos[max(failed.GetScheduledEventId(), canceled.GetScheduledEventId(), timedOut.GetScheduledEventId())]
	return Attempt{
		Event: event.EventId, Token: token, Canceled: canceled != nil,
		Unserved: timedOut.GetFailure().GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START,
		Unproved: failed.GetFailure().GetApplicationFailureInfo().GetType() == string(Unproved),
	}, token != ""
}

func (t *Trace) addResult(event int64, c *historypb.ActivityTaskCompletedEventAttributes, forward Forward, undo string,
	dc converter.DataConverter) error {
	switch {
	case forward.Entry.Token != "":
		var r Result
		// otherwise it is not an Action's, and may return anything
		if err := dc.FromPayloads(c.Result, &r); err != nil && forward.Step.ID != "" {
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

// call is the argument of a call of an action: a Forward, or of a Backward the entry and the
// decision.
type call struct {
	Forward
	Decision Decision `json:"decision"`
}

// readCall reads the argument that makes an activity the call of an action. It returns an empty
// call if there certainly is none.
func readCall(input *commonpb.Payloads, activityType string, dc converter.DataConverter) (c call, err error) {
	for _, argument := range input.GetPayloads() {
		if c, err = readArgument(argument, dc); err != nil || c.Entry.Token != "" && c.Entry.isNamedBy(activityType) {
			return c, err
		}
	}
	return call{}, nil
}

// isNamedBy reports whether an activity of this type acts on the entry.
func (e Entry) isNamedBy(activityType string) bool {
	return activityType == e.Action || activityType == e.Action+".plan" || activityType == e.UndoType ||
		activityType == e.Action+".reset"
}

// readArgument reads an argument. It returns an empty call if the argument certainly holds no
// entry.
func readArgument(argument *commonpb.Payload, dc converter.DataConverter) (c call, err error) {
	var raw json.RawMessage
	if err := dc.FromPayload(argument, &raw); errors.Is(err, converter.ErrTypeNotImplementProtoMessage) {
		return c, nil // a protocol buffer
	} else if err != nil {
		return c, fmt.Errorf("it cannot be read; the data converter must be that of the worker which ran the task: %w", err)
	}
	var looks struct {
		Entry         json.RawMessage `json:"entry"`
		OriginalRunID json.RawMessage `json:"originalRunId"`
		Decision      json.RawMessage `json:"decision"`
		Token         json.RawMessage `json:"token"`
		Undo          json.RawMessage `json:"undo"`
	}
	_ = json.Unmarshal(raw, &looks) // stays empty if it is not an object
	var into any
	switch {
	case looks.Entry != nil && (looks.OriginalRunID != nil || looks.Decision != nil):
		into = &c
	case looks.Token != nil && looks.Undo != nil:
		into = &c.Entry
	default:
		return c, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return c, fmt.Errorf("it has the form of a step's call, which this version does not understand: %w", err)
	}
	return c, nil
}

// isForwardOf reports whether f is the argument of NAME or NAME.plan.
func (f Forward) isForwardOf(activityType string) bool {
	return f.Entry.Token != "" && (activityType == f.Entry.Action || activityType == f.Entry.Action+".plan")
}
