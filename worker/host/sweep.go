package host

import (
	"context"
	"fmt"
	"strings"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Bounds of one sweep: the next one goes on.
const (
	sweepMost     = 500 // recoveries that it starts
	sweepProblems = 50  // problems that it tells
	sweepPage     = 200
)

// sweep starts the recovery of every run on this worker's queue that has ended without unwinding.
func (b builtin) sweep(ctx context.Context) (workflows.SweepResult, error) {
	defer activities.Beat(ctx)()
	swept := workflows.SweepResult{Problems: map[string]string{}}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: b.server.Namespace, Query: deadQuery(b.config.Queue), PageSize: sweepPage,
	}
	for {
		page, err := b.server.Client.ListWorkflow(ctx, request)
		if err != nil {
			return swept, fmt.Errorf("list the runs that are closed and open: %w", err)
		}
		for _, e := range page.GetExecutions() {
			if err := b.recover(ctx, e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId(), &swept); err != nil {
				return swept, err
			}
		}
		if len(page.GetNextPageToken()) == 0 || len(swept.Recovering) >= sweepMost {
			return swept, nil
		}
		request.NextPageToken = page.GetNextPageToken()
	}
}

// deadQuery lists what may have died. Never what was continued as new: that goes on in another run.
func deadQuery(queue string) string {
	return fmt.Sprintf("ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled') AND %s = 'open' AND WorkflowType IN ('%s') AND TaskQueue = '%s'",
		workflows.AttributeStatus.GetName(), strings.Join(recovery.Types, "', '"), strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(queue))
}

// recover starts the recovery of one run. An error is the end of the sweep; what concerns the run only is told in swept.
func (b builtin) recover(ctx context.Context, id, runID string, swept *workflows.SweepResult) error {
	run, err := b.startRecovery(ctx, id, runID)
	switch {
	case err == nil:
		swept.Recovering = append(swept.Recovering, run.WorkflowID)
	case ctx.Err() != nil:
		return ctx.Err()
	case len(swept.Problems) < sweepProblems && problem(recovery.WhyOf(err)):
		swept.Problems[id] = err.Error()
	}
	return nil
}

func (b builtin) startRecovery(ctx context.Context, id, runID string) (recovery.Run, error) {
	dead, err := b.server.FindRun(ctx, id, runID)
	if err != nil {
		return dead, err
	}
	// What another version wrote, a worker of that version sweeps up. What cannot be read has one recovery, which fails and says so
	// to persons; that one has none.
	if err := b.server.Readable(ctx, dead, b.converter); recovery.WhyOf(err) == recovery.OtherVersion || err != nil && dead.Type == workflows.RecoverType {
		return dead, err
	}
	return b.server.Recover(ctx, dead, "the sweep on host "+b.config.Host)
}

// problem says that somebody has to do something; else somebody was faster, or the list is behind.
func problem(why recovery.Why) bool {
	switch why {
	case "", recovery.OtherVersion, recovery.Gone, recovery.Unreadable, recovery.TooLarge:
		return true
	}
	return false
}
