package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows"
)

var decisions = []string{
	string(compensations.Retry), string(compensations.Force), string(compensations.Skip), string(compensations.Accept),
	string(compensations.Reset),
}

func (p *program) resolveCommand() *cobra.Command {
	var f decisionFlags
	var do string
	c := &cobra.Command{
		Use:     "resolve ID STEP --do retry|force|skip|accept|reset",
		GroupID: groupDecide,
		Short:   "Resolve an undo that is parked",
		Long: `Resolve decides about the undo of a step that needs a person: because someone else has changed the resource, because the
undo failed for good, or because nobody can know whether the step acted. It shows why, asks, and sends the decision with
the digest of what it showed: if that is different by then, it is refused. An undo that waits for its host continues by
itself when the host is back; skip and accept end the wait.

  retry    undo it again
  force    overwrite exactly the drift that is shown, and nothing newer
  skip     leave it as it is; the steps that it builds on wait for a person too
  accept   take the world as it is; the steps that it builds on are undone
  reset    put the resource back to its known start, whatever that loses; "starter catalog ACTION" says what, and
           which actions can

In a script give --digest (from "starter show ID -o json": .report.steps[].digest) or --yes.

The Temporal UI and CLI can decide too, by the signal or the update "resolve" with
{"step": ..., "digest": ..., "do": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example: `  starter resolve release-k3x9q2 settings --do force
  starter resolve release-k3x9q2 settings --do accept --yes --why "the new file is right"`,
		Args:              exactArguments("ID", "STEP"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, parkedSteps),
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(decisions, do) {
				return usage.Errorf("--do %q: give one of %s", do, strings.Join(decisions, ", "))
			}
			return nil
		},
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			return p.resolvePark(ctx, c, args[0], args[1], compensations.Do(do), f)
		}),
	}
	c.Flags().StringVar(&do, "do", "", "what to `do`: "+strings.Join(decisions, ", ")+"; required")
	f.addTo(c)
	_ = c.RegisterFlagCompletionFunc("do", cobra.FixedCompletions(decisions, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (p *program) resolvePark(ctx context.Context, c *tasks.Client, id, step string, do compensations.Do, f decisionFlags) error {
	t, s, err := c.OpenTask(ctx, id)
	if err != nil {
		return err
	}
	park, err := findPark(s, step)
	if err != nil {
		return err
	}
	if err := checkDecision(park, do); err != nil {
		return err
	}
	if do == compensations.Reset {
		if err := p.checkReset(park); err != nil {
			return err
		}
	}
	render.Park(p.streams.Out, c.Server, t.ID, park)
	if err := p.confirm(f, park.Digest, string(do)+" it?"); err != nil {
		return err
	}
	told, err := sendResolution(ctx, c, t, compensations.Resolution{Step: step, Digest: park.Digest, Do: do, Who: currentUser(), Why: f.why})
	if err != nil {
		return err
	}
	p.printf("%s\n", told)
	return nil
}

// sendResolution resolves a park, and says so.
func sendResolution(ctx context.Context, c *tasks.Client, t tasks.Run, r compensations.Resolution) (string, error) {
	if _, err := c.Resolve(ctx, t, r); err != nil {
		return "", err
	}
	return fmt.Sprintf("resolved: %s of step %s of task %s", r.Do, r.Step, t.ID), nil
}

// checkDecision refuses a decision that would have no effect.
func checkDecision(park compensations.StepReport, do compensations.Do) error {
	switch {
	case compensations.UndoState(park.State) == compensations.Waiting && do != compensations.Skip && do != compensations.Accept:
		return usage.Errorf("--do %s: step %s is %s, and continues by itself: nothing was sent; use skip or accept to end it", do, park.Step, park.Reason)
	case do == compensations.Force && !render.Drifted(park):
		return usage.Errorf("--do %s: step %s has not drifted, so there is nothing to force: nothing was sent; use retry, skip or accept", do, park.Step)
	}
	return nil
}

// checkReset refuses to reset what an action cannot reset. Of an action that only a worker knows, the worker says so.
func (p *program) checkReset(park compensations.StepReport) error {
	facts, err := p.workerFacts("")
	if err != nil {
		return err
	}
	for _, s := range facts.specs {
		if s.Name == park.Action && s.Reset == "" {
			ways := "retry, skip or accept"
			if render.Drifted(park) {
				ways = "retry, force, skip or accept"
			}
			return usage.Errorf("--do reset: %s has no known start to go back to: nothing was sent; use %s", s.Name, ways)
		}
	}
	return nil
}

// resolvable says that a person may decide about the undo: it is parked, or waits for a host.
func resolvable(r compensations.StepReport) bool {
	s := compensations.UndoState(r.State)
	return s == compensations.Parked || s == compensations.Waiting
}

// findPark returns the undo of a step if a person may decide about it.
func findPark(s workflows.State, step string) (compensations.StepReport, error) {
	r, found := findStepReport(s, step)
	switch {
	case found && resolvable(r):
		return r, nil
	case s.Phase != workflows.Unwinding:
		return r, usage.Errorf("task %s is not unwinding, it is %s: nothing is parked, and nothing was sent", s.Task, s.Phase)
	case found:
		return r, usage.Errorf("the undo of step %s of task %s is not parked, it is %s: nothing was sent%s", step, s.Task, r.State, otherParks(s))
	}
	return r, usage.Errorf("task %s has no step %q to undo: nothing was sent%s", s.Task, step, otherParks(s))
}

func findStepReport(s workflows.State, step string) (compensations.StepReport, bool) {
	if s.Report != nil {
		for _, r := range s.Report.Steps {
			if r.Step == step {
				return r, true
			}
		}
	}
	return compensations.StepReport{}, false
}

func otherParks(s workflows.State) string {
	steps := parkedSteps(s)
	if len(steps) == 0 {
		return "; no step is parked now"
	}
	return fmt.Sprintf("; parked: %s", strings.Join(steps, ", "))
}
