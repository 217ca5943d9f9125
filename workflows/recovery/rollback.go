package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// FindDone finds the last run of a task that can be rolled back: it has closed, and what it did is
// in place.
func (s Server) FindDone(ctx context.Context, id string) (Run, error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return run, err
	}
	if err := run.checkType(); err != nil {
		return run, err
	}
	switch {
	case !slices.Contains(GoForward, run.Type):
		return run, refusef(Foreign, id, "%s is a %s, and does no step that could be rolled back", id, run.Type)
	case run.Pause != nil:
		return run, refusef(Paused, id, "task %s is alive, and %s: unpause it; to undo it, cancel it then", id, run.Pause)
	case run.Alive():
		return run, refusef(Alive, id, "task %s is running: cancel it and it unwinds by itself", id)
	case run.Dead():
		return run, refusef(Dead, id, "task %s was %s and has not unwound: recover it", id, run.Ending())
	case !run.Done():
		return run, refusef(Ended, id, "task %s has ended as %s: there is nothing to roll back", id, run.Unwind)
	}
	return run, nil
}

// FindNewest follows the redos of a run that FindDone found: what was rolled back and redone is in
// place as the work of its redo, so that is what a rollback of the part now rolls back.
func (s Server) FindNewest(ctx context.Context, done Run, part Part) (Run, Part, error) {
	for _, p := range []Part{part, {}} {
		last, err := s.Describe(ctx, protocol.RollbackID(protocol.RollbackRequest{Chain: done.Chain, To: p.To, Step: p.Step}),
			"")
		if err == nil {
			last, err = s.findRedo(ctx, last)
		}
		switch {
		case WhyOf(err) == Unknown:
		case err != nil:
			return done, part, err
		case last.Type != protocol.RedoType || !last.Done():
			return done, part, nil
		case p == part: // it did that part, and nothing else
			return last, Part{}, nil
		default:
			return s.FindNewest(ctx, last, part)
		}
	}
	return done, part, nil
}

// Rollback starts the rollback of a run found by FindDone. It refuses a part that the task does not
// have, and a task whose rollback window has closed. dc is the data converter that the task was run
// with.
func (s Server) Rollback(ctx context.Context, done Run, part Part, who, why string, dc converter.DataConverter) (Run,
	error) {
	ledger, err := s.Ledger(ctx, protocol.LedgerRequest{WorkflowID: done.WorkflowID, RunID: done.RunID}, dc)
	if err != nil {
		return Run{}, err
	}
	if err := checkPart(done, part, ledger); err != nil {
		return Run{}, err
	}
	r := protocol.RollbackRequest{Chain: done.Chain, To: part.To, Step: part.Step, Who: who, Why: why}
	if r.Without, err = (ledgerReader{s, dc}).findEarlier(ctx, r, ledger.Entries); err != nil {
		return Run{}, err
	}
	return s.startOnce(ctx, done, protocol.RollbackID(r), protocol.RollbackType, "roll back "+done.WorkflowID,
		part.String(), r)
}

// Horizon is until when a rollback of a part of what a run has done can begin, at the latest; zero if
// none would begin now.
func (s Server) Horizon(ctx context.Context, done Run, part Part, dc converter.DataConverter) (time.Time, error) {
	ledger, err := s.Ledger(ctx, protocol.LedgerRequest{WorkflowID: done.WorkflowID, RunID: done.RunID}, dc)
	changes := func(e activities.Entry) bool { return e.UndoType != "" } // else it only reads
	if err != nil || checkPart(done, part, ledger) != nil || !slices.ContainsFunc(ledger.Entries, changes) {
		return time.Time{}, err
	}
	return horizonOf(done, ledger.Entries), nil
}

// horizonOf is when the rollback window of a run ends, less a margin in which no rollback begins.
func horizonOf(done Run, entries []activities.Entry) (until time.Time) {
	for _, e := range entries {
		keep := cmp.Or(e.Keep, activities.DefaultKeep)
		keep -= min(keep/10, margin)
		if kept := done.Closed.Add(keep); kept.After(until) {
			until = kept
		}
	}
	return until
}

// checkPart refuses a part that is not on the ledger, and a task of which nothing can be rolled
// back any longer.
func checkPart(done Run, part Part, ledger protocol.Ledger) error {
	entries := ledger.Entries
	var steps, savepoints []string
	for _, e := range entries {
		steps = append(steps, e.Step)
		if e.Savepoint != "" {
			savepoints = append(savepoints, e.Savepoint)
		}
	}
	until := horizonOf(done, entries)
	switch {
	case part.To != "" && !slices.Contains(savepoints, part.To):
		return refusef(NoSuchPart, done.WorkflowID, "task %s has no savepoint %q; it has %s", done.WorkflowID, part.To,
			listNames(savepoints))
	case part.Step != "" && !slices.Contains(steps, part.Step):
		return refusef(NoSuchPart, done.WorkflowID, "task %s has done no step %q; it has done %s", done.WorkflowID, part.Step,
			listNames(steps))
	case len(entries) == 0 && ledger.Committed > 0:
		return refusef(Ended, done.WorkflowID,
			"nothing of task %s can be rolled back: what it did up to its pivot stays, and nothing after that is in place",
			done.WorkflowID)
	case len(entries) == 0:
		return refusef(Ended, done.WorkflowID, "task %s has done nothing that could be rolled back", done.WorkflowID)
	case time.Now().After(until): //nolint:forbidigo // a client's clock, not a workflow's
		return refusef(TooLate, done.WorkflowID, "the rollback window of task %s ended at %s: its undo records are released",
			done.WorkflowID, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// margin is the end of a rollback window, at most a tenth of it, in which no rollback begins:
// retention must notice it in time.
const margin = time.Minute

// maxListed is how many names an error lists.
const maxListed = 20

func listNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + fmt.Sprintf(" and %d more", len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
