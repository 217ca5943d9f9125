package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// PlanTask plans every step of a task against the world as it is, and touches nothing. What the plans leave in journals is
// released in the end, on every path; where the run is ended before, by ClearPlan.
func PlanTask(ctx workflow.Context, doc json.RawMessage) (protocol.Plan, error) {
	compiled, err := compile(ctx, doc)
	if err != nil {
		return protocol.Plan{}, err
	}
	if n := len(compiled.Steps); n > maxPlanned {
		return protocol.Plan{}, protocol.Refusef("steps: %d are more than the %d that can be planned at once; split the task to plan it", n, maxPlanned)
	}
	seen, err := preflight(ctx, compiled)
	if err != nil {
		return protocol.Plan{}, err
	}
	publishClosed := publishPlanOpen(ctx)
	saga := compensations.New(ctx, compensations.Options{})
	calls := newCalls(ctx, func() bool { return false })
	plan, diffs := protocol.Plan{Name: compiled.Name, Notes: seen.Unseen}, 0
	for _, step := range compiled.Steps {
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
		})
		forward.Step = activities.Step{ID: step.ID, Name: step.Name, With: with, Checks: step.Check}
		if len(step.Intent) > 0 {
			forward.Agent = compiled.Agent
		}
		change, err := callStep[activities.Change](ctx, calls, step, step.Uses+".plan", "plan "+step.ID, forward)
		if err != nil {
			p.Unknown = compensations.Reason(err)
		} else {
			if diffs += len(change.Diff); diffs > maxDiffs {
				change.Diff = "(left out: the diffs of this plan are too long together)"
			}
			p.Change = &change
			p.Asks, _ = needsApproval(step, change)
		}
		plan.Steps = append(plan.Steps, p)
	}
	if err := releaseEntries(ctx, saga.Entries(), releasePatience); err != nil {
		return plan, err
	}
	publishClosed()
	plan.Fit()
	return plan, ctx.Err()
}

// How long to wait for a host that is to release what planning left there: for a plan that somebody waits for, and for ClearPlan.
const (
	releasePatience = 10 * time.Minute
	clearPatience   = 24 * time.Hour
)

// ClearPlan releases what a PlanTask left in journals that was ended before it could do so. LedgerActivity refuses it a plan that
// may still do so itself, so anybody may start it.
func ClearPlan(ctx workflow.Context, plan protocol.Chain) error {
	ledger, err := readLedger(ctx, "read what was planned", protocol.LedgerRequest{WorkflowID: plan.WorkflowID, RunID: plan.RunID})
	if err != nil {
		return err
	}
	return releaseEntries(ctx, ledger.Entries, clearPatience)
}

// releaseEntries drops what planning left behind, even if the workflow was canceled meanwhile. The details show what fails.
func releaseEntries(ctx workflow.Context, entries []activities.Entry, patience time.Duration) error {
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	t := &troubles{}
	t.changed = func() { workflow.SetCurrentDetails(calm, describeTroubles(t.views(nil))) }
	slots := workflow.NewSemaphore(calm, maxInFlight)
	var first error
	pending := len(entries)
	for _, e := range entries {
		_ = slots.Acquire(calm, 1)
		policy := e.Policy.WithDefaults()
		workflow.Go(calm, func(ctx workflow.Context) {
			err := t.persist(ctx, workflow.ActivityOptions{
				TaskQueue: e.Place.Queue, StartToCloseTimeout: policy.Attempt, ScheduleToCloseTimeout: patience,
				HeartbeatTimeout: policy.Heartbeat, Summary: "clear the plan of " + e.Step,
			}, e.Place, patience, e.Action+".release", e, nil)
			if err != nil && first == nil {
				first = err
			}
			pending--
			slots.Release(1)
		})
	}
	_ = workflow.Await(calm, func() bool { return pending == 0 })
	return first
}
