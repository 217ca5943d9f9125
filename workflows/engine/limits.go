package engine

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Bounds that keep a run within the limits of a Temporal server, which beyond them fails workflow
// tasks for ever, or ends the run with nothing undone.
const (

	// maxGates is how many steps may wait at gates before no more are started: the next run of a chain
	// reopens all of them in one workflow task, and must not be long from that alone.
	maxGates = 500

	// A server suggests continuing as new far below these (4,096 events, 4 MB); one that does not
	// still ends a run at 51,200 events or 50 MB.
	maxEvents = 20_000
	maxBytes  = 20 << 20
)

// runIsLong reports whether the history should not grow much more.
func runIsLong(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > maxEvents ||
		info.GetCurrentHistorySize() > maxBytes
}

// forEver is longer than any task; the test environment's default timeout is longer still.
const forEver = 5 * 365 * 24 * time.Hour

// checkStart refuses start options that would end a run with nothing undone, or run it again under
// the same tokens.
func checkStart(ctx workflow.Context) error {
	info := workflow.GetInfo(ctx)
	switch {
	case info.CronSchedule != "":
		return protocol.Refusef(
			"cron schedule %q: a task runs once; let a Temporal Schedule start tasks with ids of their own", info.CronSchedule)
	case info.RetryPolicy != nil:
		return protocol.Refusef("retry policy of the workflow: a task runs once; the steps have retry: in the task file")
	case info.WorkflowExecutionTimeout > 0 && info.WorkflowExecutionTimeout < forEver,
		info.WorkflowRunTimeout > 0 && info.WorkflowRunTimeout < forEver:
		return protocol.Refusef(
			"execution or run timeout: it would end the task with nothing undone; use timeout: in the task file")
	}
	return nil
}
