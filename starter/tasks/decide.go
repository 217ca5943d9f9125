package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// OpenTask returns an open task and its state. Without a worker that is an error: what the task waits for cannot be shown.
func (c *Client) OpenTask(ctx context.Context, id string) (Run, workflows.State, error) {
	t, err := c.Describe(ctx, id)
	if err != nil {
		return t, workflows.State{}, err
	}
	if err := c.CheckTakesDecisions(ctx, t); err != nil {
		return t, workflows.State{}, err
	}
	s, err := c.QueryState(ctx, t.ID, t.RunID)
	if why, silent := SilenceReason(err, t); silent {
		err = fmt.Errorf("what waits at task %s cannot be shown, so nothing was sent: %s", id, why)
	}
	return t, s, err
}

// OpenStep returns an open task and its state, in which what waits at a step is whole: a state lists only the first of many.
func (c *Client) OpenStep(ctx context.Context, id, step string) (Run, workflows.State, error) {
	t, s, err := c.OpenTask(ctx, id)
	if err != nil {
		return t, s, err
	}
	now, err := c.QueryStep(ctx, t, step)
	if err != nil { // there is no such step: the state says which there are
		return t, s, ctx.Err()
	}
	if now.Gate != nil {
		s.Gates = append(slices.DeleteFunc(s.Gates, func(g workflows.GateView) bool { return g.Step == step }), *now.Gate)
	}
	if now.Park != nil {
		s.Parks = append(slices.DeleteFunc(s.Parks, func(p workflows.ParkView) bool { return p.Step == step }), *now.Park)
	}
	if now.Undo != nil && s.Report != nil {
		s.Report.Steps = append(slices.DeleteFunc(s.Report.Steps, func(r compensations.StepReport) bool { return r.Step == step }), *now.Undo)
	}
	return t, s, nil
}

// closedError says that nothing waits at a closed task, and names what goes on about it, with the command that decides there.
func (c *Client) closedError(ctx context.Context, t Run) error {
	run, err := c.Recoveries().Describe(ctx, t.ID, t.RunID)
	if err != nil {
		return WithWayOut(err)
	}
	family, err := c.Recoveries().Family(ctx, run)
	if err != nil {
		return c.explainMissingAttributes(ctx, err)
	}
	_, by := family.Of(t.ID)
	if !by.Alive() {
		return usage.Errorf("task %s is closed: nothing waits there, and nothing was sent; see it with `starter show %s`", t.ID, terminal.ShellQuote(t.ID))
	}
	verb := map[string]string{workflows.RecoverType: "unwinds it", workflows.RollbackType: "rolls it back", workflows.RedoType: "redoes it"}[by.Type]
	return usage.Errorf("task %s is closed: nothing waits there, and nothing was sent; %s %s, decide there: `%s`", t.ID, by.WorkflowID, verb, c.decideCommand(ctx, by))
}

// decideCommand is the command that decides about the first of what waits for a person at a workflow, else the one that shows it.
func (c *Client) decideCommand(ctx context.Context, by recovery.Run) string {
	id := terminal.ShellQuote(by.WorkflowID)
	s, err := c.QueryState(ctx, by.WorkflowID, "")
	switch {
	case err == nil && len(s.Gates) > 0:
		return fmt.Sprintf("starter approve %s %s", id, terminal.ShellQuote(s.Gates[0].Step))
	case err == nil && s.Report != nil:
		for _, r := range s.Report.Steps {
			if compensations.UndoState(r.State) == compensations.Parked {
				return fmt.Sprintf("starter resolve %s %s --do retry", id, terminal.ShellQuote(r.Step))
			}
		}
	}
	return "starter show " + id
}

// effectLimit is how long a command waits for the effect of a decision.
const effectLimit = 10 * time.Second

// Approve approves what waits at a gate. The answer says how the task goes on.
func (c *Client) Approve(ctx context.Context, t Run, d workflows.Decision) (workflows.DecisionAnswer, error) {
	return c.decide(ctx, t, workflows.UpdateApprove, d)
}

// Reject rejects what waits at a gate. The answer says how the task goes on.
func (c *Client) Reject(ctx context.Context, t Run, d workflows.Decision) (workflows.DecisionAnswer, error) {
	return c.decide(ctx, t, workflows.UpdateReject, d)
}

// Resolve decides about an undo or a step that is parked.
func (c *Client) Resolve(ctx context.Context, t Run, r workflows.Resolution) (workflows.DecisionAnswer, error) {
	return c.decide(ctx, t, workflows.UpdateResolve, r)
}

// decide sends a decision to whatever run of the task's chain is the present one, and returns what it has come to.
func (c *Client) decide(ctx context.Context, t Run, update string, decision any) (answer workflows.DecisionAnswer, err error) {
	limited, cancel := context.WithTimeout(ctx, effectLimit)
	defer cancel()
	now, err := c.Describe(limited, t.ID) // it may have been paused since
	if err != nil {
		return answer, err
	}
	if now.Pause != nil {
		return answer, c.CheckTakesDecisions(ctx, now)
	}
	handle, err := c.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
		WorkflowID: t.ID, UpdateName: update, Args: []any{decision}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(limited, &answer)
	}
	var refusal *temporal.ApplicationError
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &refusal) && refusal.Type() == workflows.NothingDecided:
		return answer, fmt.Errorf("%s decided nothing: %s", update, refusal.Message())
	case errors.As(err, &gone):
		return answer, fmt.Errorf("task %s closed in the meantime: nothing was decided", t.ID)
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return answer, fmt.Errorf("the task has not answered within %s, so it may or may not have been told to %s: see `starter show %s`", effectLimit, update, terminal.ShellQuote(t.ID))
	case err != nil:
		return answer, fmt.Errorf("%s: %w", update, err)
	}
	return answer, nil
}
