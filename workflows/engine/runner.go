package engine

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxPlans bounds how often a step that needs no approval is replanned because its target changed.
const maxPlans = 100

// outputs holds the outputs of each step. The parts of a task share one.
type outputs map[string]map[string]any

// stepRunner takes a step through plan, gate, forward and probe to its end.
type stepRunner struct {
	saga     *compensations.Saga
	schedule *schedule
	gates    *gates
	room     *room
	calls    *calls.Slots

	returning int // the number of steps that run and whose outputs are kept for others

	savepoints *savepoints
	outputs    outputs
	redoes     map[string]string // in a redo, the token that each step repeats
	keep       time.Duration     // how long the task can be rolled back after its end
	pinned     bool              // whether its records are kept for all of that time
}

// runStep takes a step to its end. Its entry is on the ledger before anything is scheduled, even a plan, which may leave something
// behind too.
func (r *stepRunner) runStep(ctx workflow.Context, s *Step) error {
	forward, err := r.registerStep(ctx, s)
	if err != nil {
		return err
	}
	defer r.room.expect(s.maxKnown())()
	probes := 0
	for range maxPlans {
		if s.approved == "" && (s.Step.Gate.Plans() || s.mustAsk || s.Gate != nil) {
			if err := r.approveStep(ctx, s, forward); err != nil {
				return err
			}
		}
		if r.calls.IsHolding() {
			return calls.ErrHeld
		}
		returned, err := r.awaitRoom(ctx, s)
		if err != nil {
			return err
		}
		r.schedule.setState(s, protocol.Running)
		forward.Want, forward.Consent = s.approved, s.consent()
		result, err := calls.RunStep[activities.Result](ctx, r.calls, s.Step, s.Step.Uses, s.title(), forward)
		returned()
		switch {
		case err == nil:
			r.saga.MarkDone(forward.Entry, result)
			s.View.Summary = result.Summary
			s.AddNotes(result.Notes...)
			r.outputs[s.Step.ID] = result.Outputs
			r.room.addBytes(payload.SizeOf(result.Outputs))
			if known := forward.Entry.Known(result); known != nil {
				r.room.addBytes(payload.SizeOf(known))
			}
			return nil
		case s.approved != "" && calls.IsType(err, activities.StaleApproval):
			s.AddNotes("the target changed after the plan: planned anew")
			s.approved, s.isApproved = "", false
		case !s.isApproved && calls.IsType(err, activities.Asks):
			s.approved, s.mustAsk = "", true
		case calls.IsUnknown(err) && ctx.Err() == nil && !s.Step.ReadOnly:
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

// registerStep puts a step on the ledger, and returns the argument of its forward.
func (r *stepRunner) registerStep(ctx workflow.Context, s *Step) (activities.Forward, error) {
	with, err := s.Step.Resolve(r.outputs)
	if err != nil {
		return activities.Forward{}, protocol.Refusef("%v", err)
	}
	params, err := s.Step.EntryParams(with)
	if err != nil {
		return activities.Forward{}, protocol.Refusef("%v", err)
	}
	if r.schedule.Live {
		if err := checkIntent(r.saga.Entries(), s.Step, params); err != nil {
			return activities.Forward{}, err
		}
	}
	step := activities.Step{ID: s.Step.ID, Name: s.Step.Name, With: with, Checks: s.Step.Check}
	if err := nameLate(ctx, r.calls, r.schedule, s, step); err != nil {
		return activities.Forward{}, err
	}
	if err := r.room.reserve(ctx, len(params)+NamesOf(s.Step).size(), s.maxKnown(), len(r.saga.Entries())+1); err != nil {
		return activities.Forward{}, err
	}
	savepoint := s.Step.Savepoint
	if s.Seq == 0 && savepoint == "" {
		savepoint = r.savepoints.take()
	}
	undo := s.Step.Uses + ".undo"
	if s.Step.ReadOnly {
		undo = ""
	}
	forward := r.saga.Forward(ctx, compensations.Step{
		ID: s.Step.ID, Action: s.Step.Uses, Undo: undo, ReadOnly: s.Step.ReadOnly, Generation: s.Generation, Place: s.Step.Place, Needs: s.Step.Needs,
		Keys: s.Step.Keys, Changes: s.Step.Changes, Reads: s.Step.Reads,
		Params: params, UndoOutputs: s.Step.UndoOutputs, Policy: s.Step.Undo, Savepoint: savepoint, Pivot: s.Step.Pivot, Commits: s.Step.Commits, Keep: r.keep, Pinned: r.pinned, Redoes: r.redoes[s.Step.ID], Corrected: s.corrected,
	})
	forward.Step = step
	if len(s.Step.Intent) > 0 {
		forward.Agent, _ = workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeAgent)
	}
	s.Seq = forward.Entry.Seq
	r.savepoints.mark(savepoint, s.Seq)
	return forward, nil
}

// approveStep plans a step and, if a person must be asked, waits at its gate. A gate that an earlier run opened stays as it was.
func (r *stepRunner) approveStep(ctx workflow.Context, s *Step, forward activities.Forward) error {
	if s.Gate == nil {
		r.schedule.setState(s, protocol.Planning)
		change, err := calls.RunStep[activities.Change](ctx, r.calls, s.Step, s.Step.Uses+".plan", "plan "+s.title(), forward)
		if err != nil {
			return err
		}
		why, asked := s.Step.NeedsApproval(change)
		if !asked && !s.mustAsk {
			s.approved = change.Digest
			return nil
		}
		r.gates.ask(ctx, s, forward.Entry, change, cmp.Or(why, "its worker makes this change only with an approval"))
	}
	digest := s.Gate.view.Change.Digest
	if err := r.gates.awaitApproval(ctx, s); err != nil {
		return err
	}
	s.approved, s.isApproved = digest, true
	return nil
}

// awaitRoom waits until there is room for the outputs of a step that others refer to, beside those of the steps that run. It refuses the
// step if there is none even when it runs alone.
func (r *stepRunner) awaitRoom(ctx workflow.Context, s *Step) (ended func(), err error) {
	if !r.schedule.referred[s.Step.ID] {
		return func() {}, nil
	}
	most := protocol.MaxLedger(len(r.saga.Entries()))
	hasRoom := func() bool { return r.room.fits(activities.MaxOutputs, most) }
	if !hasRoom() {
		if err := r.measureRoom(ctx); err != nil {
			return nil, err
		}
	}
	if err := workflow.Await(ctx, func() bool { return hasRoom() || r.returning == 0 }); err != nil {
		return nil, err
	}
	if !hasRoom() {
		if err := r.measureRoom(ctx); err != nil {
			return nil, err
		}
	}
	if !hasRoom() {
		return nil, protocol.Refusef("the task carries %s compressed; with the outputs of this step, up to %d, it could be more than the %d that can be carried: split the task, or refer to fewer outputs",
			activities.CountOf(r.room.packed+r.room.expected, "byte"), activities.MaxOutputs, most)
	}
	r.returning++
	done := r.room.expect(activities.MaxOutputs)
	return func() { r.returning--; done() }, nil
}

func (r *stepRunner) measureRoom(ctx workflow.Context) error {
	size, err := r.room.measureOnce(ctx)
	if err == nil {
		r.room.reset(size)
	}
	return err
}
