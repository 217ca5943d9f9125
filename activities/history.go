package activities

import (
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
)

// EntriesIn rebuilds a ledger from the history of a run alone: the entries of all forwards that were scheduled, in order,
// each once. Activities that are no forward of an action are passed over.
func EntriesIn(events []*historypb.HistoryEvent, dc converter.DataConverter) ([]Entry, error) {
	var entries []Entry
	seen := map[string]bool{}
	for _, event := range events {
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if scheduled == nil || scheduled.Input == nil || len(scheduled.Input.Payloads) != 1 {
			continue
		}
		var f Forward
		if err := dc.FromPayloads(scheduled.Input, &f); err != nil || !f.isForwardOf(scheduled.ActivityType.GetName()) {
			continue
		}
		if !seen[f.Entry.Token] {
			seen[f.Entry.Token] = true
			entries = append(entries, f.Entry)
		}
	}
	return entries, nil
}

// isForwardOf holds for the argument of NAME and NAME.plan only: an undo's argument has no OriginalRunID.
func (f Forward) isForwardOf(activityType string) bool {
	return f.OriginalRunID != "" && f.Entry.Token != "" &&
		(activityType == f.Entry.Action || activityType == f.Entry.Action+".plan")
}
