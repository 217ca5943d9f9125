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
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var decisions = []string{
	string(compensations.Retry), string(compensations.Force), string(compensations.Skip), string(compensations.Accept),
	string(compensations.Reset), string(protocol.DoUnwind), string(protocol.DoEdit),
}

func (p *program) resolveCommand() *cobra.Command {
	var f decisionFlags
	var do string
	var with []string
	c := &cobra.Command{
		Use:     "resolve ID STEP --do retry|force|skip|accept|reset|unwind|edit",
		GroupID: groupDecide,
		Short:   "Resolve an undo, or a failed step, that is parked, or edit a step at its gate",
		Long: `Resolve decides about the undo of a step that needs a person: because someone else has changed the
resource, because the undo failed for good, or because nobody can know whether the step acted. It
shows why, asks, and sends the decision with the digest of what it showed: if that is different by
then, it is refused. An undo that waits for its host continues by itself when the host is back; skip
and accept end the wait.

  retry    undo it again
  force    overwrite exactly the drift that is shown, and nothing newer
  skip     leave it as it is; the steps that it builds on wait for a person too
  accept   take the world as it is; the steps that it builds on are undone
  reset    put the resource back to its known start, whatever that loses; "starter catalog ACTION" says what, and
           which actions can

A step with on_failure: ask is parked when it has failed and was undone. About it:

  retry    run it again; --with KEY=VALUE replaces one of its parameters, --with FILE all of them
  skip     leave it out, with the steps that need it
  unwind   undo the whole task

About a step that waits at its gate:

  edit     plan it anew with other parameters: --with KEY=VALUE replaces one of them, --with FILE all of them. It
           approves nothing: the gate opens again with the new change, which "starter approve" then shows. The
           parameters may refer to the secrets that the step had, and to no others.

In a script give --digest (from "starter show ID -o json": .report.steps[].digest, of a step
.parks[].digest, at a gate .gates[].digest) or --yes.

The Temporal UI and CLI can decide too, by the signal or the update "resolve" with {"step": ...,
"digest": ..., "do": ..., "who": ..., "why": ...}, about a step also "with".

` + exitStatuses,
		Example: `  starter resolve release-k3x9q2 settings --do force
  starter resolve release-k3x9q2 settings --do accept --yes --why "the new file is right"
  starter resolve release-k3x9q2 publish --do retry --with path=/srv/app --why "it has moved"
  starter resolve release-k3x9q2 publish --do edit --with mode=0640 --why "not for everybody"`,
		Args:              exactArguments("ID", "STEP"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, resolvableSteps),
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(decisions, do) {
				return usage.Errorf("--do %q: give one of %s", do, strings.Join(decisions, ", "))
			}
			return nil
		},
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			return p.resolvePark(ctx, c, args[0], args[1], compensations.Do(do), with, f)
		}),
	}
	c.Flags().StringVar(&do, "do", "", "what to `do`: "+strings.Join(decisions, ", ")+"; required")
	c.Flags().StringArrayVar(&with, "with", nil,
		"with retry and edit of a step: `KEY=VALUE` for one parameter, repeatable, or a file with all of them")
	f.addTo(c)
	_ = c.RegisterFlagCompletionFunc("do", cobra.FixedCompletions(decisions, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (p *program) resolvePark(ctx context.Context, c *tasks.Client, id, step string, do compensations.Do, with []string,
	f decisionFlags) error {
	t, s, err := c.OpenStep(ctx, id, step)
	if err != nil {
		return err
	}
	if do == protocol.DoEdit {
		return p.editStep(ctx, c, t, s, step, with, f)
	}
	if i := slices.IndexFunc(s.Parks, func(v protocol.ParkView) bool { return v.Step == step }); i >= 0 {
		return p.resolveStep(ctx, c, t, s.Parks[i], do, with, f)
	}
	if len(with) > 0 || do == protocol.DoUnwind {
		return usage.Errorf(
			"step %s of task %s is not parked after a failure, so --do unwind and --with do not fit: nothing was sent%s", step,
			s.Task, otherParks(s))
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
	r, err := f.sign.signResolution(park.Signed,
		protocol.Resolution{Resolution: compensations.Resolution{Step: step, Digest: park.Digest, Do: do, Who: currentUser(),
			Why: f.why}}, ofUndo(t.ID, park))
	if err != nil {
		return err
	}
	return p.send(ctx, c, t, r)
}

// resolveStep decides about a step that has failed.
func (p *program) resolveStep(ctx context.Context, c *tasks.Client, t tasks.Run, park protocol.ParkView,
	do compensations.Do, with []string, f decisionFlags) error {
	switch {
	case !slices.Contains(park.Ways, do):
		return usage.Errorf("--do %s: does not fit step %s, which failed: nothing was sent; use %s", do, park.Step,
			joinWays(park.Ways))
	case len(with) > 0 && do != compensations.Retry:
		return usage.Errorf("--with: only --do retry takes other parameters: nothing was sent")
	}
	corrected, err := p.readCorrection(with, park.With)
	if err != nil {
		return err
	}
	render.ParkedStep(p.streams.Out, c.Server, t.ID, park)
	if err := p.confirm(f, park.Digest, string(do)+" it?"); err != nil {
		return err
	}
	r, err := f.sign.signResolution(park.Signed, protocol.Resolution{
		Resolution: compensations.Resolution{Step: park.Step, Digest: park.Digest, Do: do, Who: currentUser(), Why: f.why},
		With:       corrected,
	}, ofStep(t.ID, park))
	if err != nil {
		return err
	}
	return p.send(ctx, c, t, r)
}

// editStep gives a step at a gate other parameters.
func (p *program) editStep(ctx context.Context, c *tasks.Client, t tasks.Run, s protocol.State, step string,
	with []string, f decisionFlags) error {
	g, err := findGate(s, step)
	if err != nil {
		return err
	}
	if len(with) == 0 {
		return usage.Errorf("--do edit: give the new parameters, with --with KEY=VALUE or --with FILE: nothing was sent")
	}
	now, err := c.QueryStep(ctx, t, step)
	if err != nil {
		return err
	}
	edited, err := p.readCorrection(with, now.With)
	if err != nil {
		return err
	}
	render.Gate(p.streams.Out, g)
	if err := p.confirm(f, g.Digest, "edit it?"); err != nil {
		return err
	}
	r, err := f.sign.signResolution(g.Signed, protocol.Resolution{
		Resolution: compensations.Resolution{
			Step: step, Digest: g.Digest, Do: protocol.DoEdit, Who: currentUser(), Why: f.why,
		},
		With: edited,
	}, ofEdit(t.ID, g))
	if err != nil {
		return err
	}
	return p.send(ctx, c, t, r)
}

func joinWays(ways []compensations.Do) string {
	var words []string
	for _, do := range ways {
		words = append(words, string(do))
	}
	return strings.Join(words, ", ")
}

func (p *program) send(ctx context.Context, c *tasks.Client, t tasks.Run, r protocol.Resolution) error {
	told, err := sendResolution(ctx, c, t, r)
	if err != nil {
		return err
	}
	p.printf("%s\n", told)
	return nil
}

// sendResolution resolves a park, and says so.
func sendResolution(ctx context.Context, c *tasks.Client, t tasks.Run, r protocol.Resolution) (string, error) {
	if _, err := c.Resolve(ctx, t, r); err != nil {
		return "", err
	}
	if r.Do == protocol.DoEdit {
		return fmt.Sprintf("edited: step %s of task %s is planned anew; see what it would change then, and approve that: "+
			"`starter approve %s %s`", r.Step, t.ID, terminal.ShellQuote(t.ID), terminal.ShellQuote(r.Step)), nil
	}
	return fmt.Sprintf("resolved: %s of step %s of task %s", r.Do, r.Step, t.ID), nil
}

// checkDecision refuses a decision that would have no effect.
func checkDecision(park compensations.StepReport, do compensations.Do) error {
	switch {
	case compensations.UndoState(park.State) == compensations.Waiting && do != compensations.Skip &&
		do != compensations.Accept:
		return usage.Errorf("--do %s: step %s is %s, and continues by itself: nothing was sent; use skip or accept to end it",
			do, park.Step, park.Reason)
	case do == compensations.Force && !render.Drifted(park):
		return usage.Errorf(
			"--do %s: step %s has not drifted, so there is nothing to force: nothing was sent; use retry, skip or accept", do,
			park.Step)
	}
	return nil
}

// checkReset refuses to reset what an action cannot reset. Of an action that only a worker knows,
// the worker says so.
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

// resolvableSteps are those that are parked, or at a gate.
func resolvableSteps(s protocol.State) []string { return append(parkedSteps(s), gateSteps(s)...) }

// resolvable says that a person may decide about the undo: it is parked, or waits for a host.
func resolvable(r compensations.StepReport) bool {
	s := compensations.UndoState(r.State)
	return s == compensations.Parked || s == compensations.Waiting
}

// findPark returns the undo of a step if a person may decide about it.
func findPark(s protocol.State, step string) (compensations.StepReport, error) {
	r, found := findStepReport(s, step)
	switch {
	case found && resolvable(r):
		return r, nil
	case s.Phase != protocol.Unwinding:
		return r, usage.Errorf("task %s is not unwinding, it is %s: nothing is parked, and nothing was sent", s.Task, s.Phase)
	case found:
		return r, usage.Errorf("the undo of step %s of task %s is not parked, it is %s: nothing was sent%s", step, s.Task,
			r.State, otherParks(s))
	}
	return r, usage.Errorf("task %s has no step %q to undo: nothing was sent%s", s.Task, step, otherParks(s))
}

func findStepReport(s protocol.State, step string) (compensations.StepReport, bool) {
	if s.Report != nil {
		for _, r := range s.Report.Steps {
			if r.Step == step {
				return r, true
			}
		}
	}
	return compensations.StepReport{}, false
}

func otherParks(s protocol.State) string {
	steps := parkedSteps(s)
	if len(steps) == 0 {
		return "; no step is parked now"
	}
	return fmt.Sprintf("; parked: %s", strings.Join(steps, ", "))
}
