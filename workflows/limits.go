package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"
)

// Bounds that keep a run inside what a Temporal server takes: past them it fails workflow tasks without end, or ends the
// run with nothing undone.
const (
	// maxSteps is how many steps one run can take forward and back.
	maxSteps = 3000
	// maxInFlight is how many activities of a task run at once: each may have 64 KiB of parameters, and all that are
	// scheduled in one workflow task go in one message of at most 4 MB.
	maxInFlight = 40
	// maxReport is the size of a report: it stands in the history as the result or in the failure.
	maxReport = 1_000_000
	// maxDiffs is the size of all diffs of a Plan together.
	maxDiffs = 500_000

	maxEvents     = 51_200
	maxBytes      = 45 << 20
	eventsAnUndo  = 8    // an activity, its workflow tasks, and a retry now and then
	eventsToClose = 1000 // gates, parks, signals
)

// historyFull says why no further step may start: what is left of the history is needed to unwind. Empty: it may.
func historyFull(ctx workflow.Context, entries int) string {
	info := workflow.GetInfo(ctx)
	if info.GetCurrentHistoryLength()+eventsAnUndo*(entries+1)+eventsToClose > maxEvents || info.GetCurrentHistorySize() > maxBytes {
		return fmt.Sprintf("the history has %d events and %d bytes: the rest of what a server takes is needed to unwind; split the task",
			info.GetCurrentHistoryLength(), info.GetCurrentHistorySize())
	}
	return ""
}

// forEver is longer than any task: what the test environment has for a timeout where none is set.
const forEver = 5 * 365 * 24 * time.Hour

// checkStart refuses ways of starting that would end a run with nothing undone, or run it again under the same tokens.
func checkStart(ctx workflow.Context) error {
	info := workflow.GetInfo(ctx)
	switch {
	case info.CronSchedule != "":
		return refused("cron schedule %q: a task runs once; let a Temporal Schedule start tasks with ids of their own", info.CronSchedule)
	case info.RetryPolicy != nil:
		return refused("retry policy of the workflow: a task runs once; the steps have retry: in the task file")
	case info.WorkflowExecutionTimeout > 0 && info.WorkflowExecutionTimeout < forEver,
		info.WorkflowRunTimeout > 0 && info.WorkflowRunTimeout < forEver:
		return refused("execution or run timeout: it would end the task with nothing undone; use timeout: in the task file")
	}
	return nil
}
