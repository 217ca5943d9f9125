package activities

import (
	"encoding/json"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
)

// EntriesIn rebuilds a ledger from the history of a run alone: the entries of all forwards that were scheduled, in order,
// each once. Activities that are no forward of an action are passed over; where dc cannot read an argument (it is
// encrypted, say, and dc lacks the codec), whether it is a forward cannot be known, and that is an error.
func EntriesIn(events []*historypb.HistoryEvent, dc converter.DataConverter) ([]Entry, error) {
	var entries []Entry
	seen := map[string]bool{}
	for _, event := range events {
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if len(scheduled.GetInput().GetPayloads()) != 1 {
			continue
		}
		f, err := forwardIn(scheduled.Input.Payloads[0], dc)
		if err != nil {
			return nil, fmt.Errorf("event %d, argument of %s: %w", event.EventId, scheduled.ActivityType.GetName(), err)
		}
		if f.isForwardOf(scheduled.ActivityType.GetName()) && !seen[f.Entry.Token] {
			seen[f.Entry.Token] = true
			entries = append(entries, f.Entry)
		}
	}
	return entries, nil
}

// forwardIn reads an argument; what is certainly no Forward is an empty one.
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
	}
	_ = json.Unmarshal(raw, &looks) // what is no object looks like nothing
	if looks.Entry == nil || looks.OriginalRunID == nil {
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
