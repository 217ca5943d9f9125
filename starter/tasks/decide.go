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

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// OpenTask returns an open task and its state. Without a worker that is an error: what the task
// waits for cannot be shown.
func (c *Client) OpenTask(ctx context.Context, id string) (Run, protocol.State, error) {
	t, err := c.Describe(ctx, id)
	if err != nil {
		return t, protocol.State{}, err
	}
	if err := c.CheckTakesDecisions(ctx, t); err != nil {
		return t, protocol.State{}, err
	}
	s, err := c.QueryState(ctx, t.ID, t.RunID)
	if why, silent := SilenceReason(err, t); silent {
		err = fmt.Errorf("what waits at task %s cannot be shown, so nothing was sent: %s", id, why)
	}
	return t, s, err
}

// OpenStep returns an open task and its state, in which what waits at a step is whole: a state
// lists only the first of many.
func (c *Client) OpenStep(ctx context.Context, id, step string) (Run, protocol.State, error) {
	t, s, err := c.OpenTask(ctx, id)
	if err != nil {
		return t, s, err
	}
	now, err := c.QueryStep(ctx, t, step)
	if err != nil { // there is no such step: the state says which there are
		return t, s, ctx.Err()
	}
	if now.Gate != nil {
		s.Gates = append(slices.DeleteFunc(s.Gates, func(g protocol.GateView) bool { return g.Step == step }), *now.Gate)
	}
	if now.Park != nil {
		s.Parks = append(slices.DeleteFunc(s.Parks, func(p protocol.ParkView) bool { return p.Step == step }), *now.Park)
	}
	if now.Undo != nil && s.Report != nil {
		s.Report.Steps = append(slices.DeleteFunc(s.Report.Steps,
			func(r compensations.StepReport) bool { return r.Step == step }), *now.Undo)
	}
	return t, s, nil
}

// closedError says that nothing waits at a closed task, and names what goes on about it, with the
// command that decides there.
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
		return usage.Errorf("task %s is closed: nothing waits there, and nothing was sent; see it with `starter show %s`",
			t.ID, terminal.ShellQuote(t.ID))
	}
	verb := map[string]string{protocol.RecoverType: "unwinds it", protocol.RollbackType: "rolls it back",
		protocol.RedoType: "redoes it"}[by.Type]
	return usage.Errorf("task %s is closed: nothing waits there, and nothing was sent; %s %s, decide there: `%s`", t.ID,
		by.WorkflowID, verb, c.decideCommand(ctx, by))
}

// decideCommand is the command that decides about the first of what waits for a person at a
// workflow, else the one that shows it.
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

// updateLimit is how long a decision is offered as an update, which a server takes only from so
// many at once, and only while a worker serves the task. A signal it always takes. effectLimit is
// how long a command then waits for the effect.
const (
	updateLimit = 5 * time.Second
	effectLimit = 10 * time.Second
)

// Approve approves what waits at a gate. The answer says how the task goes on.
func (c *Client) Approve(ctx context.Context, t Run, d protocol.Decision) (protocol.DecisionAnswer, error) {
	return c.decide(ctx, t, protocol.UpdateApprove, decided{d, d.Step, func(now protocol.StepNow) bool {
		return waitsAt(now, d) && !slices.ContainsFunc(now.Gate.Assents,
			func(a activities.Assent) bool { return activities.IsSamePerson(a.Who, d.Who) })
	}})
}

// Reject rejects what waits at a gate. The answer says how the task goes on.
func (c *Client) Reject(ctx context.Context, t Run, d protocol.Decision) (protocol.DecisionAnswer, error) {
	return c.decide(ctx, t, protocol.UpdateReject,
		decided{d, d.Step, func(now protocol.StepNow) bool { return waitsAt(now, d) }})
}

// Resolve decides about an undo or a step that is parked, or edits a step at a gate.
func (c *Client) Resolve(ctx context.Context, t Run, r protocol.Resolution) (protocol.DecisionAnswer, error) {
	return c.decide(ctx, t, protocol.UpdateResolve, decided{r, r.Step, func(now protocol.StepNow) bool {
		return now.Gate != nil && now.Gate.Digest == r.Digest || now.Park != nil && now.Park.Digest == r.Digest ||
			now.Undo != nil && now.Undo.Digest == r.Digest &&
				(now.Undo.State == string(compensations.Parked) || now.Undo.State == string(compensations.Waiting))
	}})
}

// waitsAt reports whether a step waits at the gate that a decision is about.
func waitsAt(now protocol.StepNow, d protocol.Decision) bool {
	return now.Gate != nil && now.Gate.Digest == d.Digest
}

// decide sends a decision to whatever run of the task's chain is the present one, and returns what
// it has come to. What the server takes as no update goes as the signal of the same name.
func (c *Client) decide(ctx context.Context, t Run, name string, about decided) (answer protocol.DecisionAnswer,
	err error) {
	now, err := c.Describe(ctx, t.ID) // it may have been paused since
	if err != nil {
		return answer, err
	}
	if now.Pause != nil {
		return answer, c.CheckTakesDecisions(ctx, now)
	}
	answer, err = c.decideByUpdate(ctx, t, name, about.decision)
	var refusal *temporal.ApplicationError
	var gone *serviceerror.NotFound
	switch {
	case err == nil, ctx.Err() != nil:
		return answer, err
	case errors.As(err, &refusal) && refusal.Type() == protocol.NothingDecided:
		return answer, fmt.Errorf("%s decided nothing: %s", name, refusal.Message())
	case errors.As(err, &refusal):
		return answer, fmt.Errorf("%s: %w", name, err)
	case errors.As(err, &gone):
		return answer, fmt.Errorf("task %s closed in the meantime: nothing was decided", t.ID)
	}
	return c.decideBySignal(ctx, t, name, about)
}

func (c *Client) decideByUpdate(ctx context.Context, t Run, name string, decision any) (answer protocol.DecisionAnswer,
	err error) {
	limited, cancel := context.WithTimeout(ctx, updateLimit)
	defer cancel()
	handle, err := c.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
		WorkflowID: t.ID, UpdateName: name, Args: []any{decision}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(limited, &answer)
	}
	return answer, err
}

// decided is a decision, with the step that it is about, and whether that still waits for it.
type decided struct {
	decision any
	step     string
	stands   func(protocol.StepNow) bool
}

// decideBySignal sends a decision, unless the update was carried out after all, and waits for its
// effect.
func (c *Client) decideBySignal(ctx context.Context, t Run, name string, about decided) (answer protocol.DecisionAnswer,
	err error) {
	now, err := c.QueryStep(ctx, Run{ID: t.ID}, about.step)
	if err != nil || about.stands(now) {
		if err := c.SignalWorkflow(ctx, t.ID, "", name, about.decision); err != nil {
			return answer, fmt.Errorf("%s: %w", name, err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, effectLimit)
	defer cancel()
	for ; limited.Err() == nil; pause(limited, queryAgain) {
		if now, err = c.QueryStep(limited, Run{ID: t.ID}, about.step); err != nil || about.stands(now) {
			continue
		}
		state, err := c.QueryState(limited, t.ID, "")
		if err != nil {
			continue
		}
		answer = protocol.DecisionAnswer{Step: about.step, State: now.Step.State, Phase: state.Phase, Cause: state.Cause}
		if now.Gate != nil {
			answer.Waits = now.Gate.Waits
		}
		if now.Undo != nil {
			answer.Undo = compensations.UndoState(now.Undo.State)
		}
		return answer, nil
	}
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	return answer, Unseen{fmt.Sprintf("task %s was told to %s, and has done nothing about it within %s: it does as soon "+
		"as a worker serves it; see `starter show %s`", t.ID, name, effectLimit, terminal.ShellQuote(t.ID))}
}

// Unseen is the error of a decision that was sent, and whose effect was not seen in time: it still
// takes effect.
type Unseen struct{ text string }

func (e Unseen) Error() string { return e.text }
