package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/packed"
)

// Bounds that keep a run inside what a Temporal server takes: past them it fails workflow tasks without end, or ends the
// run with nothing undone.
const (
	// maxPlanned is how many steps PlanTask takes: it does not continue as new.
	maxPlanned = 3000
	// maxInFlight is how many activities of a task run at once: each may have 64 KiB of parameters, and all that are
	// scheduled in one workflow task go in one message of at most 4 MB.
	maxInFlight = 40
	// maxGates is how many steps wait at gates before no more are started: the next run of a chain opens all of them anew in one
	// workflow task, and must not be long by that alone.
	maxGates = 500
	// What unwinding finds out is carried over beside the ledger: texts, which are shortened until they fit, and a row with two
	// digests for each entry that is parked or skipped. There is room for the first maxProgress of those.
	reservedTexts = 100_000
	progressBytes = 100
	maxProgress   = 2_000
	// maxReport is the size of a report: it stands in the history as the result or in the failure.
	maxReport = 1_000_000
	// maxDiffs is the size of all diffs of a Plan together.
	maxDiffs = 500_000

	// A server suggests to continue as new far below these (4,096 events, 4 MB); one that does not, ends a run at 51,200
	// events or 50 MB.
	maxEvents = 20_000
	maxBytes  = 20 << 20
)

// Bounds on the texts in signals.
const (
	maxName = 200
	maxWhy  = 1000
)

// maxLedger is how large a ledger of so many entries may be, compressed.
func maxLedger(entries int) int {
	return packed.Max - reservedTexts - progressBytes*min(entries, maxProgress)
}

// runIsLong says that the history should not grow much more.
func runIsLong(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > maxEvents || info.GetCurrentHistorySize() > maxBytes
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

func refused(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), string(activities.Refused), nil)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
