package stream

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// Watch has what terraform refreshes, plans and changes shown while it runs, until stop is called.
// Addresses and actions are shown, no values: terraform says only afterwards which of these are
// sensitive.
func Watch(ctx context.Context, stdout string) (stop func()) {
	return activities.ShowProgress(ctx, func() []string {
		var lines []string
		_ = ReadEvents(stdout, func(e Event) { // it may not be there yet
			if line := e.describe(); line != "" {
				lines = append(lines, line)
			}
		})
		return lines
	})
}

// describe says what an event is about; empty for one that nobody waits for.
func (e Event) describe() string {
	switch {
	case e.Type == "planned_change" && e.Change != nil:
		return fmt.Sprintf("%s: %s planned", e.Change.Resource.Address, e.Change.Action)
	case e.Type == "change_summary" && e.Changes != nil:
		return fmt.Sprintf("%s: %d to add, %d to change, %d to destroy", e.Changes.Operation, e.Changes.Add, e.Changes.Change,
			e.Changes.Remove)
	case e.Hook == nil:
		return ""
	}
	address := e.Hook.Resource.Address
	switch e.Type {
	case "refresh_start":
		return address + ": refreshing"
	case "refresh_complete":
		return address + ": refreshed"
	case "apply_start":
		return fmt.Sprintf("%s: %s begun", address, e.Hook.Action)
	case "apply_progress":
		return fmt.Sprintf("%s: %s goes on for %.0f s", address, e.Hook.Action, e.Hook.Elapsed)
	case "apply_complete":
		return fmt.Sprintf("%s: %s done", address, e.Hook.Action)
	case "apply_errored":
		return fmt.Sprintf("%s: %s failed", address, e.Hook.Action)
	case "provision_start":
		return fmt.Sprintf("%s: provisioner %s runs", address, e.Hook.Provisioner)
	}
	return ""
}
