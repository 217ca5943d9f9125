package recovery

import (
	"context"
	"fmt"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// LastOf describes the last run of the chain that a run belongs to, or the run itself if its
// workflow id was used again since.
func (s Server) LastOf(ctx context.Context, id, runID string) (Run, error) {
	run, err := s.Describe(ctx, id, runID)
	if err != nil {
		return run, err
	}
	last, err := s.Describe(ctx, id, "")
	if err != nil || last.FirstRunID != run.FirstRunID {
		return run, err
	}
	return last, nil
}

// Busy lists the workflow ids of tasks that a recovery, rollback or redo works on, running or dead
// and not yet recovered. The list is a few seconds behind at most.
func (s Server) Busy(ctx context.Context) (map[string]bool, error) {
	busy := map[string]bool{}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.Namespace,
		Query: fmt.Sprintf("WorkflowType IN ('%s', '%s', '%s') AND %s = 'open'",
			protocol.RecoverType, protocol.RollbackType, protocol.RedoType, protocol.AttributeStatus.GetName()),
	}
	for {
		page, err := s.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list what works on tasks after their end: %w", err)
		}
		for _, e := range page.GetExecutions() {
			run, err := s.LastOf(ctx, e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId())
			if err != nil && WhyOf(err) == "" {
				return nil, err
			}
			needed, err := s.Needed(ctx, run)
			if err != nil {
				return nil, err
			}
			if needed {
				busy[run.Task] = true
			}
		}
		if len(page.GetNextPageToken()) == 0 {
			return busy, nil
		}
		request.NextPageToken = page.GetNextPageToken()
	}
}

// Needed reports whether the ledger of a run is still needed: the run is alive, or it is dead and
// not fully recovered.
func (s Server) Needed(ctx context.Context, run Run) (bool, error) {
	last, err := s.LastRecovery(ctx, run)
	return last.Alive() || last.Dead(), err
}

// LastRecovery follows the recoveries of a dead run to the last one: a recovery may be dead too,
// and have its own recovery. If run is not dead or has no recovery, it is run itself.
func (s Server) LastRecovery(ctx context.Context, run Run) (Run, error) {
	for run.Dead() {
		next, err := s.Describe(ctx, protocol.RecoverID(run.Chain), "")
		if WhyOf(err) == Unknown {
			return run, nil
		}
		if err != nil {
			return run, err
		}
		run = next
	}
	return run, nil
}
