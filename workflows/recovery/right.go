package recovery

import (
	"context"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Anybody who may start workflows can start a Recover, Rollback or Redo of any run by hand. So a
// ledger is refused or handed over by the facts that the server alone states, and not by who
// started the workflow: the ledger of a dead run goes to the one workflow whose id is that of its
// recovery.

// LedgerFor is Ledger for the workflow id, which unwinds it: it refuses a workflow that has no
// right to.
func (s Server) LedgerFor(ctx context.Context, id, workflowType string, r protocol.LedgerRequest,
	dc converter.DataConverter) (protocol.Ledger, error) {
	if err := s.checkRight(ctx, id, workflowType, r); err != nil {
		return protocol.Ledger{}, err
	}
	return s.Ledger(ctx, r, dc)
}

// checkRight refuses a ledger to a workflow that must not act on it.
func (s Server) checkRight(ctx context.Context, id, workflowType string, r protocol.LedgerRequest) error {
	run, err := s.Describe(ctx, r.WorkflowID, r.RunID)
	if WhyOf(err) == Unknown {
		return refusef(Gone, r.WorkflowID, "run %s of %s is gone from the server", r.RunID, r.WorkflowID)
	}
	if err != nil {
		return err
	}
	switch own := id == r.WorkflowID; {
	case own: // it was reset from that run
		return nil
	case workflowType == protocol.ClearPlanType && id == protocol.ClearPlanID(run.Chain):
		return run.checkDeadPlan()
	case workflowType == protocol.RecoverType && id == protocol.RecoverID(run.Chain):
		return s.checkStaysDead(ctx, run)
	case workflowType == protocol.RollbackType &&
		id == protocol.RollbackID(protocol.RollbackRequest{Chain: run.Chain, To: r.To, Step: r.Step}):
		if !run.Done() {
			return refusef(Ended, r.WorkflowID,
				"run %s of %s has not ended with what it did in place: there is nothing to roll back", r.RunID, r.WorkflowID)
		}
		return nil
	}
	return refusef(Foreign, r.WorkflowID,
		"%s of type %s is not what unwinds run %s of %s: use starter recover, rollback or redo", id, workflowType, r.RunID,
		r.WorkflowID)
}

// checkStaysDead refuses a run that is alive, or goes on as another one.
func (s Server) checkStaysDead(ctx context.Context, run Run) error {
	if err := run.checkDead(); err != nil {
		return err
	}
	last, err := s.LastOf(ctx, run.WorkflowID, run.RunID)
	if err == nil && last.Alive() {
		return refusef(Alive, run.WorkflowID, "run %s of %s goes on as %s", run.RunID, run.WorkflowID, last.RunID)
	}
	return err
}

// checkRedo refuses a Redo that Server.Redo did not start, or whose rollback has not ended.
func (s Server) checkRedo(ctx context.Context, id string, r protocol.RedoRequest) error {
	if id != protocol.RedoID(r.Rollback) {
		return refusef(Foreign, r.Rollback.WorkflowID, "%s is not what redoes %s: use starter redo", id,
			r.Rollback.WorkflowID)
	}
	rollback, err := s.Describe(ctx, r.Rollback.WorkflowID, r.Rollback.RunID)
	if WhyOf(err) == Unknown || err == nil && rollback.FirstRunID != r.Rollback.FirstRunID {
		return refusef(Gone, r.Rollback.WorkflowID, "rollback %s is gone from the server", r.Rollback.WorkflowID)
	}
	if err != nil {
		return err
	}
	return s.checkOver(ctx, rollback)
}

// Final turns a refusal into a non-retryable error: of type NotYours if the workflow that asked
// must not act.
func Final(err error) error {
	errorType := string(activities.Refused)
	switch WhyOf(err) {
	case "":
		return err
	case Alive, Paused, Ended, Superseded, Foreign, Dead:
		errorType = protocol.NotYours
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), errorType, nil)
}
