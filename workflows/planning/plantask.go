package planning

import (
	"encoding/json"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// PlanTask plans every step of a task against the world as it is, and touches nothing. What the
// plans leave in journals is released in the end, on every path; where the run is ended before, by
// ClearPlan.
func PlanTask(ctx workflow.Context, doc json.RawMessage) (protocol.Plan, error) {
	compiled, err := calls.Compile(ctx, doc)
	if err != nil {
		return protocol.Plan{}, err
	}
	if n := len(compiled.Steps); n > maxPlanned {
		return protocol.Plan{},
			protocol.Refusef("steps: %d are more than the %d that can be planned at once; split the task to plan it", n,
				maxPlanned)
	}
	seen, err := calls.Preflight(ctx, compiled)
	if err != nil {
		return protocol.Plan{}, err
	}
	publishClosed := publishPlanOpen(ctx)
	saga := compensations.New(ctx, compensations.Options{})
	slots := calls.NewSlots(ctx, func() bool { return false })
	plan, diffs := protocol.Plan{Name: compiled.Name, Notes: seen.Unseen}, 0
	for i, step := range compiled.Steps {
		p := protocol.PlannedStep{ID: step.ID, Name: step.Name, Uses: step.Uses, Needs: step.Needs, Host: step.Place.Host}
		if p.Refused = seen.RefusalOf(step.ID); p.Refused != "" {
			plan.Steps = append(plan.Steps, p)
			continue
		}
		if step.Gate.Plans() {
			p.Asks = step.Gate.Why
		}
		with, err := step.Resolve(nil)
		if err != nil {
			p.Unknown = err.Error()
			plan.Steps = append(plan.Steps, p)
			continue
		}
		params, err := step.EntryParams(with)
		if err != nil {
			p.Unknown = err.Error()
			plan.Steps = append(plan.Steps, p)
			continue
		}
		forward := saga.Forward(ctx, compensations.Step{
			ID: step.ID, Action: step.Uses, Undo: step.Uses + ".undo", Place: step.Place, Params: params, Policy: step.Undo,
			Pivot: step.Pivot, Keep: compiled.Keep,
		})
		forward.Step = activities.Step{ID: step.ID, Name: step.Name, With: with, Checks: step.Check}
		forward.Agent = compiled.Agent
		forward.BeforePivot = slices.ContainsFunc(compiled.Steps[i+1:], func(s task.Step) bool { return s.Pivot })
		change, err := calls.RunStep[activities.Change](ctx, slots, step, step.Uses+".plan", "plan "+step.ID, forward)
		if err != nil {
			p.Unknown = compensations.Reason(err)
		} else {
			if diffs += len(change.Diff); diffs > maxDiffs {
				change.Diff = "(left out: the diffs of this plan are too long together)"
			}
			p.Change = &change
			p.Asks, _ = step.NeedsApproval(change)
		}
		plan.Steps = append(plan.Steps, p)
	}
	if err := calls.ReleaseEntries(ctx, saga.Entries(), releasePatience); err != nil {
		return plan, err
	}
	publishClosed()
	plan.Fit()
	return plan, ctx.Err()
}

// How long to wait for a host that is to release what planning left there: for a plan that somebody
// waits for, and for ClearPlan.
const (
	releasePatience = 10 * time.Minute
	clearPatience   = 24 * time.Hour
)

// ClearPlan releases what a PlanTask left in journals that was ended before it could do so.
// LedgerActivity refuses it a plan that may still do so itself, so anybody may start it.
func ClearPlan(ctx workflow.Context, plan protocol.Chain) error {
	ledger, err := calls.ReadLedger(ctx, "read what was planned",
		protocol.LedgerRequest{WorkflowID: plan.WorkflowID, RunID: plan.RunID})
	if err != nil {
		return err
	}
	return calls.ReleaseEntries(ctx, ledger.Entries, clearPatience)
}

// publishPlanOpen says that a plan may leave something in journals; whoever finds it closed like
// that clears it. A plan that has no status any more has left nothing.
func publishPlanOpen(ctx workflow.Context) (closed func()) {
	calls.UpsertAttributes(ctx, protocol.AttributeStatus.ValueSet(string(compensations.Open)))
	return func() { calls.UpsertAttributes(ctx, protocol.AttributeStatus.ValueUnset()) }
}

// maxPlanned is the largest number of steps that PlanTask takes, because it does not continue as
// new.
const maxPlanned = 3000

// maxDiffs is the largest size of all diffs of a Plan together.
const maxDiffs = 500_000
