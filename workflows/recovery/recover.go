package recovery

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Find finds the run to recover for a workflow id: its last run or, if the recovery of that has
// died, the last run of the recovery.
func (s Server) Find(ctx context.Context, id string) (Run, error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return run, err
	}
	return s.findUnrecovered(ctx, run)
}

// FindRun is Find for a closed run from a list that may be long out of date. If the workflow id was
// used again since, the run is a task of its own.
func (s Server) FindRun(ctx context.Context, id, runID string) (Run, error) {
	last, err := s.LastOf(ctx, id, runID)
	if err != nil {
		return last, err
	}
	if last.RunID != runID {
		return last, refusef(Superseded, id, "run %s of %s was reset: run %s goes on in its place", runID, id, last.RunID)
	}
	return s.findUnrecovered(ctx, last)
}

// findUnrecovered follows the dead recoveries of a dead run to the one that nothing recovers yet.
func (s Server) findUnrecovered(ctx context.Context, run Run) (Run, error) {
	for {
		if err := run.checkDead(); err != nil {
			return run, err
		}
		next, err := s.Describe(ctx, protocol.RecoverID(run.Chain), "")
		switch {
		case WhyOf(err) == Unknown:
			return run, nil
		case err != nil:
			return run, err
		case !next.Dead():
			return run, refuseTaken(run, next)
		}
		run = next
	}
}

// checkDead refuses a run that is not dead.
func (r Run) checkDead() error {
	if err := r.checkType(); err != nil {
		return err
	}
	switch {
	case r.Dead():
		return nil
	case r.Pause != nil:
		return refusef(Paused, r.WorkflowID, "%s is alive, and %s: unpause it, and it goes on; or take it over", r.WorkflowID,
			r.Pause)
	case r.Alive():
		return refusef(Alive, r.WorkflowID,
			"%s is running: cancel it and it unwinds by itself; where it is stuck, take it over", r.WorkflowID)
	case r.Done():
		return refusef(Ended, r.WorkflowID,
			"%s has ended by itself as %s: there is nothing to recover; to take it back, roll it back", r.WorkflowID, r.Unwind)
	case r.Status == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return refusef(Superseded, r.WorkflowID, "run %s of %s was continued by another: it is not the last one", r.RunID,
			r.WorkflowID)
	}
	return refusef(Ended, r.WorkflowID, "%s has ended by itself as %s: there is nothing to recover", r.WorkflowID,
		r.Unwind)
}

// Recover starts the recovery of a run that Find has found.
func (s Server) Recover(ctx context.Context, dead Run, who string) (Run, error) {
	return s.startOnce(ctx, dead, protocol.RecoverID(dead.Chain), protocol.RecoverType, "recover "+dead.WorkflowID, "",
		protocol.RecoverRequest{Chain: dead.Chain, Ended: dead.Ending(), Who: who})
}

// TakeOver terminates the running chain of a workflow id and finds the run to recover. It does not
// terminate what could not be recovered: see Readable. For a chain that is already dead it is the
// same as Find.
func (s Server) TakeOver(ctx context.Context, id, who string, dc converter.DataConverter) (Run, error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return run, err
	}
	if err := run.checkType(); err != nil {
		return run, err
	}
	if run.Alive() {
		if err := s.checkTakeOver(ctx, run, dc); err != nil {
			return run, err
		}
		_, err := s.Client.WorkflowService().TerminateWorkflowExecution(ctx,
			&workflowservice.TerminateWorkflowExecutionRequest{
				Namespace: s.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
				FirstExecutionRunId: run.FirstRunID, // whichever run of the chain is the last by now
				Reason:              "taken over by " + who + ": " + protocol.RecoverID(run.Chain) + " unwinds it",
				Identity:            who,
			})
		if err != nil {
			return run, fmt.Errorf("terminate %s: %w", id, err)
		}
	}
	return s.Find(ctx, id)
}

// checkTakeOver refuses a live run that could not be recovered if it were dead.
func (s Server) checkTakeOver(ctx context.Context, run Run, dc converter.DataConverter) error {
	by, err := s.Describe(ctx, protocol.RecoverID(run.Chain), "") // it exists if the run was reset
	switch {
	case err == nil && !by.Dead():
		return refuseTaken(run, by)
	case err != nil && WhyOf(err) != Unknown:
		return err
	}
	if err := s.Readable(ctx, run, dc); WhyOf(err) != Unreadable {
		return err
	}
	return nil
}
