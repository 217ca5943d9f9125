package engine

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// maxPlans bounds how often a step that needs no approval is replanned because its target changed.
const maxPlans = 100

// maxStanding is how often a worker may refuse the standing approvals of a step before persons are asked.
const maxStanding = 3

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

// runStep takes a step to its end. Its entry is on the ledger before anything is scheduled, even a
// plan, which may leave something behind too.
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
		forward.Want, forward.Consent, forward.Assents = s.approved, s.consent(), s.assents
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
		case calls.IsType(err, activities.StaleApproval), calls.IsType(err, activities.Unproved):
			s.Step.Place.Signed = s.Step.Place.Signed || calls.IsType(err, activities.Unproved)
			s.AddNotes("planned anew, because what was let pass no longer holds: " + compensations.Reason(err))
			if slices.ContainsFunc(s.assents, activities.Assent.IsStanding) {
				s.refusals++
			}
			s.approved, s.isApproved, s.assents = "", false, nil
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
		ID: s.Step.ID, Action: s.Step.Uses, Undo: undo, ReadOnly: s.Step.ReadOnly, Generation: s.Generation,
		Place: s.Step.Place, Needs: s.Step.Needs,
		Keys: s.Step.Keys, Changes: s.Step.Changes, Reads: s.Step.Reads,
		Params: params, UndoOutputs: s.Step.UndoOutputs, Policy: s.Step.Undo, Savepoint: savepoint, Pivot: s.Step.Pivot,
		Commits: s.Step.Commits, Keep: r.keep, Pinned: r.pinned, Redoes: r.redoes[s.Step.ID], Corrected: s.corrected,
	})
	forward.Step = step
	forward.Agent = agentOf(ctx)
	s.Seq = forward.Entry.Seq
	forward.BeforePivot = r.schedule.isBeforePivot(s)
	r.savepoints.mark(savepoint, s.Seq)
	return forward, nil
}

// agentOf is who the task is for, as it claims.
func agentOf(ctx workflow.Context) string {
	agent, _ := workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeAgent)
	return agent
}

// approveStep plans a step and, if a person must be asked, waits at its gate. A gate that an
// earlier run opened stays as it was.
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
		if s.refusals >= maxStanding {
			change.Standing = nil
		}
		if standing := change.Standing; len(standing) > 0 && change.Policy.Waits(forward.Agent, standing) == "" {
			s.approved, s.isApproved, s.assents = change.Digest, true, standing
			s.AddNotes("approved by " + approvers(change, standing))
			return nil
		}
		r.gates.ask(ctx, s, forward.Entry, change, cmp.Or(why, "its worker makes this change only with an approval"))
	}
	gate := s.Gate
	if err := r.gates.awaitApproval(ctx, s); err != nil {
		return err
	}
	s.approved, s.isApproved, s.assents = gate.view.Change.Digest, true, gate.view.Assents
	return nil
}

// awaitRoom waits until there is room for the outputs of a step that others refer to, beside those
// of the steps that run. It refuses the step if there is none even when it runs alone.
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
		return nil, protocol.Refusef(
			"the task carries %s compressed; with the outputs of this step, up to %d, it could be more than the %d that can "+
				"be carried: split the task, or refer to fewer outputs",
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

// maxProbes bounds how often a step is retried because a probe found that it had not happened.
const maxProbes = 3

// probeStep asks the world whether a forward with an unknown outcome has happened, and adds the
// answer to the step's notes. It returns true if it had not happened and the forward has retries
// left, so that it may run again. If that cannot be known, the step is undone like any other.
func probeStep(ctx workflow.Context, s *Step, e activities.Entry, unknown error) (hasNotHappened bool) {
	policy := e.Policy.WithDefaults()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: e.Place.Queue, StartToCloseTimeout: time.Minute, ScheduleToStartTimeout: time.Minute,
		ScheduleToCloseTimeout: 5 * time.Minute,
		HeartbeatTimeout:       policy.Heartbeat, Summary: "probe " + s.Step.ID,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
			MaximumInterval: 30 * time.Second},
	})
	var seen activities.Observation
	if err := workflow.ExecuteActivity(ctx, e.Action+".observe", e).Get(ctx, &seen); err != nil {
		s.AddNotes("probe: whether it happened cannot be known: " + compensations.Reason(err))
		return false
	}
	switch seen.State {
	case activities.AsLeft:
		s.AddNotes("probe: it had happened")
	case activities.AsBefore:
		s.AddNotes("probe: it had not happened")
		return calls.IsType(unknown, activities.UnknownOutcome)
	case activities.Elsewise, activities.Unseen:
		note := "probe: whether it happened cannot be known"
		if seen.Detail != "" {
			note += ": " + payload.Clip(seen.Detail, payload.MaxWhy)
		}
		s.AddNotes(note)
	}
	return false
}

// checkIntent refuses a step of a session that has the same purpose as one on the ledger, whatever
// other words it uses: an agent that has lost track would act twice. What was rolled back is no
// longer on the ledger, so it may be done again.
func checkIntent(ledger []activities.Entry, s task.Step, params json.RawMessage) error {
	if s.Again || len(s.Intent) == 0 {
		return nil
	}
	meant := activities.Meant(params, s.Intent)
	for _, e := range ledger {
		if e.Action == s.Uses && e.Step != s.ID && reflect.DeepEqual(activities.Meant(e.Params, s.Intent), meant) {
			return protocol.Refusef(
				"step %s is for the same: %s with the same %s. Go on with what it has returned, or roll it back first; "+
					"if this is meant to happen once more, add again: true to the step", e.Step, s.Uses, strings.Join(s.Intent, ", "))
		}
	}
	return nil
}

// nameLate has a step's host name what the step touches, if that has depended on what earlier steps
// return. Where the host does not answer, the step stays one that may touch anything, and so comes
// after all before it and before all after it.
func nameLate(ctx workflow.Context, slots *calls.Slots, c *schedule, s *Step, step activities.Step) error {
	if !s.Step.NamedLate || s.Seq > 0 { // with an entry it has its names
		return nil
	}
	request := protocol.PreflightRequest{Late: true,
		Steps: []protocol.PreflightStep{{Uses: s.Step.Uses, Step: activities.Outlook{Step: step}}}}
	size := int64(min(payload.SizeOf(request), calls.MaxScheduled))
	if err := slots.Acquire(ctx, size); err != nil {
		return err
	}
	c.setState(s, protocol.Running)
	seen, err := calls.LookAt(ctx, s.Step.Place, request)
	slots.Release(size)
	switch {
	case ctx.Err() != nil:
		return temporal.NewCanceledError()
	case slots.IsHolding():
		return calls.ErrHeld
	case err == nil && len(seen.Touched) == 1:
		s.Step.TakeNames(seen.Touched[0])
	default:
		s.Step.TakeNames(activities.Touched{})
	}
	return nil
}
