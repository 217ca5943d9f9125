package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Bounds of one sweep; the next one continues.
const (
	sweepMost     = 500 // workflows that it starts
	sweepProblems = 50  // problems that it reports
	sweepPage     = 200
)

// sweep starts the recovery of every run on this worker's queue that ended without unwinding, and
// clears every plan that was ended before it had done so itself.
func (b builtin) sweep(ctx context.Context) (protocol.SweepResult, error) {
	defer activities.Beat(ctx)()
	swept := protocol.SweepResult{Problems: map[string]string{}}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: b.server.Namespace, Query: deadQuery(b.config.Queue), PageSize: sweepPage,
	}
	for {
		page, err := b.server.Client.ListWorkflow(ctx, request)
		if err != nil {
			return swept, fmt.Errorf("list the runs that are closed and open: %w", err)
		}
		for _, e := range page.GetExecutions() {
			if err := b.settle(ctx, e, &swept); err != nil {
				return swept, err
			}
		}
		if len(page.GetNextPageToken()) == 0 || len(swept.Recovering)+len(swept.Clearing) >= sweepMost {
			b.tidySchedules(ctx, &swept)
			return swept, nil
		}
		request.NextPageToken = page.GetNextPageToken()
	}
}

// tidySchedules removes the schedules of hosts that are gone, unless schedules are left to an
// operator.
func (b builtin) tidySchedules(ctx context.Context, swept *protocol.SweepResult) {
	if b.config.Schedules == off {
		return
	}
	dropped, err := dropSchedulesOfGoneHosts(ctx, b.server.Client, b.server.Namespace, b.config.Queue, goneAfter)
	if swept.Dropped = dropped; err != nil {
		swept.Problems["schedules"] = err.Error()
	}
}

// deadQuery lists runs that may be dead, of tasks and of plans. Runs continued as new are not: they
// go on in another run.
func deadQuery(queue string) string {
	return fmt.Sprintf(
		"ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled') AND %s = 'open' AND WorkflowType IN ('%s') "+
			"AND TaskQueue = '%s'",
		protocol.AttributeStatus.GetName(), strings.Join(append(slices.Clone(recovery.Types), protocol.PlanTaskType), "', '"),
		strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(queue))
}

// settle starts what one run needs. An error ends the sweep; what concerns only this run is
// reported in swept.
func (b builtin) settle(ctx context.Context, e *workflowpb.WorkflowExecutionInfo, swept *protocol.SweepResult) error {
	id, runID := e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()
	start, started := b.startRecovery, &swept.Recovering
	if e.GetType().GetName() == protocol.PlanTaskType {
		start, started = b.startClearing, &swept.Clearing
	}
	run, err := start(ctx, id, runID)
	switch {
	case err == nil:
		*started = append(*started, run.WorkflowID)
	case ctx.Err() != nil:
		return ctx.Err()
	case len(swept.Problems) < sweepProblems && isProblem(recovery.WhyOf(err)):
		swept.Problems[id] = err.Error()
	}
	return nil
}

func (b builtin) startRecovery(ctx context.Context, id, runID string) (recovery.Run, error) {
	dead, err := b.server.FindRun(ctx, id, runID)
	if err != nil {
		return dead, err
	}
	// A run that another version wrote is left to a worker of that version. A run that cannot be read
	// gets one recovery, which fails and reports it; that recovery gets none.
	if err := b.server.Readable(ctx, dead, b.converter); recovery.WhyOf(err) == recovery.OtherVersion || err != nil &&
		dead.Type == protocol.RecoverType {
		return dead, err
	}
	return b.server.Recover(ctx, dead, "the sweep on host "+b.config.Host)
}

func (b builtin) startClearing(ctx context.Context, id, runID string) (recovery.Run, error) {
	plan, err := b.server.FindPlan(ctx, id, runID)
	if err != nil {
		return plan, err
	}
	if err := b.server.Readable(ctx, plan, b.converter); err != nil {
		return plan, err
	}
	return b.server.ClearPlan(ctx, plan)
}

// isProblem reports whether somebody has to act; otherwise somebody else was faster, or the list
// lags.
func isProblem(why recovery.Why) bool {
	switch why {
	case "", recovery.Foreign, recovery.OtherVersion, recovery.Gone, recovery.Unreadable, recovery.TooLarge:
		return true
	}
	return false
}
