package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// maxPlans bounds how often a step is planned anew because its target changed under it without anybody being asked.
const maxPlans = 100

// errHeld ends the coroutine of a step while nothing may start: the step continues from there after a rollback, or in the next
// run.
var errHeld = errors.New("held")

// outputs are those of the steps, by step. The parts of a task share one.
type outputs map[string]map[string]any

// stepRunner brings a step to its end: plan, gate, forward, probe. Each coroutine of the executor has one step at a time.
type stepRunner struct {
	saga     *compensations.Saga
	schedule *schedule
	gates    *gates
	room     *room
	calls    *calls

	outputs outputs
	redoes  map[string]string // of a redo: the token that each step does again
	keep    time.Duration     // how long a step can be rolled back after the end
	pinned  bool              // its record is kept for all of that time
}

// runStep brings a step to its end. Its entry is on the ledger before anything is scheduled: a plan may leave something behind
// too.
func (r *stepRunner) runStep(ctx workflow.Context, s *stepRun) error {
	forward, err := r.registerStep(ctx, s)
	if err != nil {
		return err
	}
	probes := 0
	for range maxPlans {
		if s.step.Gate.Plans && s.approved == "" {
			if err := r.approveStep(ctx, s, forward); err != nil {
				return err
			}
		}
		if r.calls.isHolding() {
			return errHeld
		}
		r.schedule.setState(s, Running)
		forward.Want = s.approved
		result, err := callStep[activities.Result](ctx, r.calls, s.step, s.step.Uses, s.title(), forward)
		switch {
		case err == nil:
			s.view.Summary = result.Summary
			s.addNotes(result.Notes...)
			r.outputs[s.step.ID] = result.Outputs
			r.room.grow(sizeOf(result.Outputs))
			return nil
		case s.step.Gate.Plans && isType(err, activities.StaleApproval):
			s.addNotes("the target changed after the plan: planned anew")
			s.approved = ""
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
		fmt.Sprintf("the target changed after each of %d plans", maxPlans), string(activities.StaleApproval), nil)
}

// registerStep puts a step on the ledger, and returns what its forward gets.
func (r *stepRunner) registerStep(ctx workflow.Context, s *stepRun) (activities.Forward, error) {
	with, err := s.step.Resolve(r.outputs)
	if err != nil {
		return activities.Forward{}, refused("%v", err)
	}
	params, err := s.step.EntryParams(with)
	if err != nil {
		return activities.Forward{}, refused("%v", err)
	}
	if err := r.room.reserve(len(params), len(r.saga.Entries())+1); err != nil {
		return activities.Forward{}, err
	}
	undo := s.step.Uses + ".undo"
	if s.step.ReadOnly {
		undo = ""
	}
	forward := r.saga.Forward(ctx, compensations.Step{
		ID: s.step.ID, Action: s.step.Uses, Undo: undo, ReadOnly: s.step.ReadOnly, Generation: s.generation, Place: s.step.Place, Needs: s.step.Needs, Keys: s.step.Keys,
		Params: params, Policy: s.step.Undo, Savepoint: s.step.Savepoint, Pivot: s.step.Pivot, Commits: s.step.Commits, Keep: r.keep, Pinned: r.pinned, Redoes: r.redoes[s.step.ID],
	})
	forward.Step = activities.Step{ID: s.step.ID, Name: s.step.Name, With: with, Checks: s.step.Check}
	s.seq = forward.Entry.Seq
	return forward, nil
}

// approveStep plans a step and, where a person must be asked, waits at its gate. A gate that an earlier run has opened is
// still the same.
func (r *stepRunner) approveStep(ctx workflow.Context, s *stepRun, forward activities.Forward) error {
	if s.gate == nil {
		r.schedule.setState(s, Planning)
		change, err := callStep[activities.Change](ctx, r.calls, s.step, s.step.Uses+".plan", "plan "+s.title(), forward)
		if err != nil {
			return err
		}
		why, asked := needsApproval(s.step, change)
		if !asked {
			s.approved = change.Digest
			return nil
		}
		s.openings++
		s.gate = newGate(workflow.Now(ctx), s, forward.Entry, change, why)
	}
	digest := s.gate.view.Change.Digest
	if err := r.gates.awaitApproval(ctx, s); err != nil {
		return err
	}
	s.approved = digest
	return nil
}
