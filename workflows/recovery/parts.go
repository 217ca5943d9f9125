package recovery

import (
	"context"
	"fmt"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A task can be rolled back in parts, and each part redone. Rollbacks that overlap are a stack: a
// later one leaves out what an earlier one has undone, the last one is redone first, and a redone
// part is rolled back before more of the task is.

// listPartRollbacks lists the ids of the rollbacks of parts of a task. The list is a few seconds
// behind at most.
func (s Server) listPartRollbacks(ctx context.Context, task protocol.Chain) ([]string, error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.Namespace,
		Query: fmt.Sprintf("WorkflowType = '%s' AND WorkflowId STARTS_WITH '%s-'",
			protocol.RollbackType, protocol.RollbackID(protocol.RollbackRequest{Chain: task})),
	}
	var ids []string
	for {
		page, err := s.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list the rollbacks of task %s: %w", task.WorkflowID, err)
		}
		for _, e := range page.GetExecutions() { // a long rollback has several runs
			if id := e.GetExecution().GetWorkflowId(); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return ids, nil
		}
	}
}

// readRequest reads the argument of a rollback.
func (s Server) readRequest(ctx context.Context, rollback Run, dc converter.DataConverter) (r protocol.RollbackRequest,
	err error) {
	history := s.Client.GetWorkflowHistory(ctx, rollback.WorkflowID, rollback.FirstRunID, false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	first, err := history.Next()
	if err != nil {
		return r, fmt.Errorf("history of %s: %w", rollback.WorkflowID, err)
	}
	if err := dc.FromPayloads(first.GetWorkflowExecutionStartedEventAttributes().GetInput(), &r); err != nil {
		return r, fmt.Errorf("argument of %s: %w", rollback.WorkflowID, err)
	}
	return r, nil
}

// findOverlapping finds the other rollbacks of a task that have or had a step in common with one.
func (l ledgerReader) findOverlapping(ctx context.Context, one protocol.RollbackRequest,
	entries []activities.Entry) ([]Run, error) {
	part, err := protocol.Part(entries, one.To, one.Step)
	if err != nil {
		return nil, err
	}
	ids, err := l.listPartRollbacks(ctx, one.Chain)
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	for _, e := range part {
		mine[e.Token] = true
	}
	var found []Run
	for _, id := range append(ids, protocol.RollbackID(protocol.RollbackRequest{Chain: one.Chain})) {
		if id == protocol.RollbackID(one) {
			continue
		}
		run, err := l.Describe(ctx, id, "")
		if WhyOf(err) == Unknown {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := l.readRequest(ctx, run, l.dc)
		if err != nil {
			return nil, err
		}
		other, err := protocol.Part(entries, r.To, r.Step)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(other, func(e activities.Entry) bool { return mine[e.Token] }) {
			found = append(found, run)
		}
	}
	return found, nil
}

// findEarlier finds the rollbacks that have undone some of what r is to undo. It refuses if such a
// part was redone since, or if nothing is left.
func (l ledgerReader) findEarlier(ctx context.Context, r protocol.RollbackRequest,
	entries []activities.Entry) ([]protocol.Chain, error) {
	before, err := l.findOverlapping(ctx, r, entries)
	if err != nil {
		return nil, err
	}
	var chains []protocol.Chain
	for _, rollback := range before {
		if err := l.checkOver(ctx, rollback); err != nil {
			return nil, err
		}
		by, err := l.findRedo(ctx, rollback)
		if err != nil {
			return nil, err
		}
		if by.Type == protocol.RedoType {
			return nil, refusef(Order, by.WorkflowID,
				"a part of %s was rolled back by %s and done again by %s: roll %s back first",
				r.WorkflowID, rollback.WorkflowID, by.WorkflowID, by.WorkflowID)
		}
		chains = append(chains, rollback.Chain)
	}
	if len(chains) == 0 {
		return nil, nil
	}
	r.Without = chains
	if left, err := l.selectPart(ctx, entries, r.Ledger()); err != nil {
		return nil, err
	} else if len(left) == 0 {
		return nil, refusef(Ended, before[0].WorkflowID, "that part of %s was already rolled back by %s", r.WorkflowID,
			before[0].WorkflowID)
	}
	return chains, nil
}

// checkOrder refuses to redo a rollback before later ones that overlap it.
func (l ledgerReader) checkOrder(ctx context.Context, rollback Run, r protocol.RollbackRequest) error {
	ledger, err := l.Ledger(ctx, protocol.LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID}, l.dc)
	if err != nil {
		return err
	}
	others, err := l.findOverlapping(ctx, r, ledger.Entries)
	if err != nil {
		return err
	}
	for _, other := range others {
		if !other.Alive() && other.Closed.Before(rollback.Closed) {
			continue
		}
		by, err := l.findRedo(ctx, other)
		if err != nil {
			return err
		}
		if by.Type != protocol.RedoType {
			return refusef(Order, by.WorkflowID, "more of %s was rolled back by %s after %s: redo %s first",
				r.WorkflowID, by.WorkflowID, rollback.WorkflowID, by.WorkflowID)
		}
	}
	return nil
}

// findRedo finds the redo of a rollback, finished or running. If there is none, or it was rolled
// back itself, it returns the last rollback.
func (s Server) findRedo(ctx context.Context, rollback Run) (Run, error) {
	for {
		redo, err := s.Describe(ctx, protocol.RedoID(rollback.Chain), "")
		if WhyOf(err) == Unknown {
			return rollback, nil
		}
		if err != nil {
			return redo, err
		}
		if needed, err := s.Needed(ctx, redo); err != nil || needed {
			return redo, err
		}
		if !redo.Done() {
			return rollback, nil // it failed and unwound
		}
		back, err := s.Describe(ctx, protocol.RollbackID(protocol.RollbackRequest{Chain: redo.Chain}), "")
		if WhyOf(err) == Unknown {
			return redo, nil
		}
		if err != nil {
			return back, err
		}
		if needed, err := s.Needed(ctx, back); err != nil || needed {
			return redo, err
		}
		rollback = back
	}
}

// dropUndone returns entries without those that rollbacks have undone.
func (l ledgerReader) dropUndone(ctx context.Context, entries []activities.Entry,
	rollbacks []protocol.Chain) ([]activities.Entry, error) {
	for _, rollback := range rollbacks {
		undone, err := l.findUndone(ctx, rollback)
		if err != nil {
			return nil, err
		}
		entries = slices.DeleteFunc(slices.Clone(entries), func(e activities.Entry) bool { return undone[e.Token] })
	}
	return entries, nil
}
