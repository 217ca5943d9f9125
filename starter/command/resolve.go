package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

var decisions = []string{
	string(compensations.Retry), string(compensations.Force), string(compensations.Skip), string(compensations.Accept),
	string(compensations.Reset),
}

func (p *program) resolve() *cobra.Command {
	var f consent
	var do string
	c := &cobra.Command{
		Use:     "resolve ID STEP --do retry|force|skip|accept|reset",
		GroupID: groupDecide,
		Short:   "Resolve an undo that is parked",
		Long: `Resolve decides about the undo of a step that needs a person: because someone else has changed the resource, because the
undo failed for good, or because nobody can know whether the step acted. It shows why, asks, and sends the signal
"resolve" with the digest of what it showed; then it waits until the task has acted on it. An undo that waits for its host
continues by itself when the host is back; skip and accept end the wait.

  retry    undo it again
  force    overwrite exactly the drift that is shown, and nothing newer
  skip     leave it as it is; the steps that it builds on wait for a person too
  accept   take the world as it is; the steps that it builds on are undone
  reset    put the resource back to its known start, whatever that loses; "starter catalog ACTION" says what, and
           which actions can

In a script give --digest (from "starter show ID -o json": .report.steps[].digest) or --yes.

The signal can be sent by other means too; its payload is {"step": ..., "digest": ..., "do": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example: `  starter resolve release-k3x9q2 settings --do force
  starter resolve release-k3x9q2 settings --do accept --yes --why "the new file is right"`,
		Args:              exactly("ID", "STEP"),
		ValidArgsFunction: p.completeTask(filter{}, parkedSteps),
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(decisions, do) {
				return usagef("--do %q: give one of %s", do, strings.Join(decisions, ", "))
			}
			return nil
		},
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			return p.resolvePark(ctx, c, args[0], args[1], compensations.Do(do), f)
		}),
	}
	c.Flags().StringVar(&do, "do", "", "what to `do`: "+strings.Join(decisions, ", ")+"; required")
	f.add(c)
	_ = c.RegisterFlagCompletionFunc("do", cobra.FixedCompletions(decisions, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (p *program) resolvePark(ctx context.Context, c *connection, id, step string, do compensations.Do, f consent) error {
	t, s, err := c.running(ctx, id)
	if err != nil {
		return err
	}
	park, err := parkOf(s, step)
	if err != nil {
		return err
	}
	if err := fits(park, do); err != nil {
		return err
	}
	writePark(p.streams.Out, t.ID, park)
	if err := p.consents(f, park.Digest, string(do)+" it?"); err != nil {
		return err
	}
	r := compensations.Resolution{Step: step, Digest: park.Digest, Do: do, Who: who(), Why: f.why}
	taken := func(s workflows.State) bool {
		now, found := reported(s, step)
		return !found || said(now, r) > said(park, r) // a long report leaves out what is clean
	}
	if err := c.signal(ctx, t, compensations.SignalResolve, r, taken); err != nil {
		return err
	}
	p.printf("resolved: %s of step %s of task %s\n", do, step, t.ID)
	return nil
}

// fits refuses a decision that would decide nothing.
func fits(park compensations.StepReport, do compensations.Do) error {
	switch {
	case compensations.UndoState(park.State) == compensations.Waiting && do != compensations.Skip && do != compensations.Accept:
		return usagef("--do %s: step %s is %s, and continues by itself: nothing was sent; use skip or accept to end it", do, park.Step, park.Reason)
	case do == compensations.Force && !drifted(park):
		return usagef("--do %s: step %s has not drifted, so there is nothing to force: nothing was sent; use retry, skip or accept", do, park.Step)
	}
	return nil
}

// said is how often a step's notes hold that decision.
func said(s compensations.StepReport, r compensations.Resolution) int {
	n := 0
	for _, note := range s.Notes {
		if strings.HasPrefix(note, string(r.Do)+" by "+r.Who) {
			n++
		}
	}
	return n
}

// resolvable says that a person may decide about the undo: it is parked, or waits for a host that may never come back.
func resolvable(r compensations.StepReport) bool {
	s := compensations.UndoState(r.State)
	return s == compensations.Parked || s == compensations.Waiting
}

// parkOf is the undo of a step that a person may decide about.
func parkOf(s workflows.State, step string) (compensations.StepReport, error) {
	r, found := reported(s, step)
	switch {
	case found && resolvable(r):
		return r, nil
	case s.Phase != workflows.Unwinding:
		return r, usagef("task %s is not unwinding, it is %s: nothing is parked, and nothing was sent", s.Task, s.Phase)
	case found:
		return r, usagef("the undo of step %s of task %s is not parked, it is %s: nothing was sent%s", step, s.Task, r.State, otherParks(s))
	}
	return r, usagef("task %s has no step %q to undo: nothing was sent%s", s.Task, step, otherParks(s))
}

func reported(s workflows.State, step string) (compensations.StepReport, bool) {
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
