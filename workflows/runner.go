package workflows

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxPlans bounds how often a step that needs no approval is replanned because its target changed.
const maxPlans = 100

// errHeld ends the coroutine of a step while starting is suspended: the step continues from there after a rollback, or in the
// next run.
var errHeld = errors.New("held")

// outputs holds the outputs of each step. The parts of a task share one.
type outputs map[string]map[string]any

// stepRunner takes a step through plan, gate, forward and probe to its end.
type stepRunner struct {
	saga     *compensations.Saga
	schedule *schedule
	gates    *gates
	room     *room
	calls    *calls

	returning int // the number of steps that run and whose outputs are kept for others

	savepoints *savepoints
	outputs    outputs
	redoes     map[string]string // in a redo, the token that each step repeats
	keep       time.Duration     // how long the task can be rolled back after its end
	pinned     bool              // whether its records are kept for all of that time
}

// runStep takes a step to its end. Its entry is on the ledger before anything is scheduled, even a plan, which may leave something
// behind too.
func (r *stepRunner) runStep(ctx workflow.Context, s *stepRun) error {
	forward, err := r.registerStep(ctx, s)
	if err != nil {
		return err
	}
	defer r.room.expect(s.maxKnown())()
	probes := 0
	for range maxPlans {
		if s.approved == "" && (s.step.Gate.Plans() || s.mustAsk || s.gate != nil) {
			if err := r.approveStep(ctx, s, forward); err != nil {
				return err
			}
		}
		if r.calls.isHolding() {
			return errHeld
		}
		returned, err := r.awaitRoom(ctx, s)
		if err != nil {
			return err
		}
		r.schedule.setState(s, protocol.Running)
		forward.Want, forward.Consent = s.approved, s.consent()
		result, err := callStep[activities.Result](ctx, r.calls, s.step, s.step.Uses, s.title(), forward)
		returned()
		switch {
		case err == nil:
			r.saga.MarkDone(forward.Entry, result)
			s.view.Summary = result.Summary
			s.addNotes(result.Notes...)
			r.outputs[s.step.ID] = result.Outputs
			r.room.addBytes(payload.SizeOf(result.Outputs))
			if known := forward.Entry.Known(result); known != nil {
				r.room.addBytes(payload.SizeOf(known))
			}
			return nil
		case s.approved != "" && isType(err, activities.StaleApproval):
			s.addNotes("the target changed after the plan: planned anew")
			s.approved, s.isApproved = "", false
		case !s.isApproved && isType(err, activities.Asks):
			s.approved, s.mustAsk = "", true
		case isUnknown(err) && ctx.Err() == nil && !s.step.ReadOnly:
			if hasNotHappened := probeStep(ctx, s, forward.Entry, err); !hasNotHappened || probes >= maxProbes {
				return err
			}
			probes++
		default:
			return err
		}
	}
	return temporal.NewNonRetryableApplicationError(
		"the target changed after each of "+activities.CountOf(maxPlans, "plan"), string(activities.StaleApproval), nil)
}

// consent says who has let the step make its change.
func (s *stepRun) consent() activities.Consent {
	if s.isApproved {
		return activities.Approved
	}
	return s.step.Gate.Consent()
}

// maxKnown is how many bytes of the step's result its undo may be given, with their frame.
func (s *stepRun) maxKnown() int {
	if len(s.step.UndoOutputs) == 0 {
		return 0
	}
	return activities.MaxKnown + entryBytes
}

// registerStep puts a step on the ledger, and returns the argument of its forward.
func (r *stepRunner) registerStep(ctx workflow.Context, s *stepRun) (activities.Forward, error) {
	with, err := s.step.Resolve(r.outputs)
	if err != nil {
		return activities.Forward{}, protocol.Refusef("%v", err)
	}
	params, err := s.step.EntryParams(with)
	if err != nil {
		return activities.Forward{}, protocol.Refusef("%v", err)
	}
	if err := r.checkIntent(s.step, params); err != nil {
		return activities.Forward{}, err
	}
	step := activities.Step{ID: s.step.ID, Name: s.step.Name, With: with, Checks: s.step.Check}
	if err := r.nameLate(ctx, s, step); err != nil {
		return activities.Forward{}, err
	}
	if err := r.room.reserve(ctx, len(params)+namesOf(s.step).size(), s.maxKnown(), len(r.saga.Entries())+1); err != nil {
		return activities.Forward{}, err
	}
	savepoint := s.step.Savepoint
	if s.seq == 0 && savepoint == "" {
		savepoint = r.savepoints.take()
	}
	undo := s.step.Uses + ".undo"
	if s.step.ReadOnly {
		undo = ""
	}
	forward := r.saga.Forward(ctx, compensations.Step{
		ID: s.step.ID, Action: s.step.Uses, Undo: undo, ReadOnly: s.step.ReadOnly, Generation: s.generation, Place: s.step.Place, Needs: s.step.Needs,
		Keys: s.step.Keys, Changes: s.step.Changes, Reads: s.step.Reads,
		Params: params, UndoOutputs: s.step.UndoOutputs, Policy: s.step.Undo, Savepoint: savepoint, Pivot: s.step.Pivot, Commits: s.step.Commits, Keep: r.keep, Pinned: r.pinned, Redoes: r.redoes[s.step.ID], Corrected: s.corrected,
	})
	forward.Step = step
	if len(s.step.Intent) > 0 {
		forward.Agent, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeAgent)
	}
	s.seq = forward.Entry.Seq
	r.savepoints.mark(savepoint, s.seq)
	return forward, nil
}

// approveStep plans a step and, if a person must be asked, waits at its gate. A gate that an earlier run opened stays as it was.
func (r *stepRunner) approveStep(ctx workflow.Context, s *stepRun, forward activities.Forward) error {
	if s.gate == nil {
		r.schedule.setState(s, protocol.Planning)
		change, err := callStep[activities.Change](ctx, r.calls, s.step, s.step.Uses+".plan", "plan "+s.title(), forward)
		if err != nil {
			return err
		}
		why, asked := needsApproval(s.step, change)
		if !asked && !s.mustAsk {
			s.approved = change.Digest
			return nil
		}
		r.gates.ask(ctx, s, forward.Entry, change, cmp.Or(why, "its worker makes this change only with an approval"))
	}
	digest := s.gate.view.Change.Digest
	if err := r.gates.awaitApproval(ctx, s); err != nil {
		return err
	}
	s.approved, s.isApproved = digest, true
	return nil
}
