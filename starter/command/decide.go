package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// decisionFlags are the flags of a command that shows something, and then decides about it.
type decisionFlags struct {
	digest, why string
	yes         bool
	sign        signFlags
}

func (f *decisionFlags) addTo(c *cobra.Command) {
	c.Flags().StringVar(&f.digest, "digest", "", "decide without being asked, but only if the `digest` is this one")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "decide without being asked, whatever is there")
	c.Flags().StringVar(&f.why, "why", "", "`reason`, kept with the decision")
	f.sign.addTo(c)
}

func (p *program) approveCommand() *cobra.Command {
	var f decisionFlags
	c := &cobra.Command{
		Use:     "approve ID STEP",
		GroupID: groupDecide,
		Short:   "Approve what waits at a step's gate",
		Long: `Approve shows the change that waits at the gate of a step, asks, and sends the decision with the
digest of that change: if the change is different by then, it is refused. It answers when the step
goes on.

In a script, where nobody can be asked, give --digest (from "starter show ID -o json":
.gates[].digest) to approve exactly one change, or --yes to approve whatever is there.

The Temporal UI and CLI can decide too, by the signal or the update "approve" with {"step": ...,
"digest": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example: `  starter approve release-k3x9q2 publish
  starter approve release-k3x9q2 publish --yes --why "tested on staging"
  starter approve release-k3x9q2 publish --digest sha256:1f0c...`,
		Args:              exactArguments("ID", "STEP"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, gateSteps),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			return p.decideGate(ctx, c, args[0], args[1], true, f)
		}),
	}
	f.addTo(c)
	return c
}

func (p *program) rejectCommand() *cobra.Command {
	var why string
	var sign signFlags
	c := &cobra.Command{
		Use:     "reject ID STEP --why WHY",
		GroupID: groupDecide,
		Short:   "Reject what waits at a step's gate; the task unwinds",
		Long: `Reject turns down what waits at the gate of a step, with the reason. The task then unwinds: every
step that acted is undone; with on_failure: rollback_step only that step is. It answers when the
task has acted on it.

The Temporal UI and CLI can decide too, by the signal or the update "reject" with {"step": ...,
"digest": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example:           `  starter reject release-k3x9q2 publish --why "not on a Friday"`,
		Args:              exactArguments("ID", "STEP"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, gateSteps),
		PreRunE: func(*cobra.Command, []string) error {
			if strings.TrimSpace(why) == "" {
				return usage.Errorf("--why is missing: say why; it is kept in the report")
			}
			return nil
		},
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			return p.decideGate(ctx, c, args[0], args[1], false, decisionFlags{why: why, yes: true, sign: sign})
		}),
	}
	c.Flags().StringVar(&why, "why", "", "`reason`, kept with the decision; required")
	sign.addTo(c)
	return c
}

// decideGate shows what waits at a gate, asks for confirmation of an approval, and sends the
// decision.
func (p *program) decideGate(ctx context.Context, c *tasks.Client, id, step string, approve bool,
	f decisionFlags) error {
	t, s, err := c.OpenStep(ctx, id, step)
	if err != nil {
		return err
	}
	g, err := findGate(s, step)
	if err != nil {
		return err
	}
	render.Gate(p.streams.Out, g)
	if approve {
		if err := p.confirm(f, g.Digest, "approve it?"); err != nil {
			return err
		}
	}
	told, err := decide(ctx, c, t, g, f.why, approve, f.sign)
	if err != nil {
		return err
	}
	p.printf("%s\n", told)
	return nil
}

// decide signs a decision about a gate, if only signed ones count there, and sends it.
func decide(ctx context.Context, c *tasks.Client, t tasks.Run, g protocol.GateView, why string, approve bool,
	f signFlags) (string, error) {
	verdict := activities.Reject
	if approve {
		verdict = activities.Approve
	}
	d, err := f.signGate(t.ID, verdict, g, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: currentUser(), Why: why})
	if err != nil {
		return "", err
	}
	return sendDecision(ctx, c, t, d, approve)
}

// sendDecision decides a gate, and says what that has come to.
func sendDecision(ctx context.Context, c *tasks.Client, t tasks.Run, d protocol.Decision, approve bool) (string,
	error) {
	if !approve {
		answer, err := c.Reject(ctx, t, d)
		switch {
		case err != nil:
			return "", err
		case answer.Cause == nil:
			return fmt.Sprintf("rejected: step %s of task %s is %s, the task goes on", d.Step, t.ID, answer.State), nil
		}
		return fmt.Sprintf("rejected: task %s unwinds", t.ID), nil
	}
	answer, err := c.Approve(ctx, t, d)
	switch {
	case err != nil:
		return "", err
	case answer.Cause != nil:
		return "", fmt.Errorf("step %s was approved, but task %s goes no further: %s", d.Step, t.ID, answer.Cause.Text)
	}
	if answer.Waits != "" {
		return fmt.Sprintf("approved: step %s of task %s waits for others, %s", d.Step, t.ID, answer.Waits), nil
	}
	return fmt.Sprintf("approved: step %s of task %s goes on", d.Step, t.ID), nil
}

// findGate returns the open gate of a step.
func findGate(s protocol.State, step string) (protocol.GateView, error) {
	for _, g := range s.Gates {
		if g.Step == step {
			return g, nil
		}
	}
	for _, v := range s.Steps {
		if v.ID == step {
			return protocol.GateView{},
				usage.Errorf("step %s of task %s is not at a gate, it is %s: nothing was sent%s", step, s.Task, v.State,
					otherGates(s))
		}
	}
	return protocol.GateView{}, usage.Errorf("task %s has no step %q: nothing was sent%s", s.Task, step, otherGates(s))
}

// otherGates names the steps that wait at a gate, as the end of a message.
func otherGates(s protocol.State) string {
	if len(s.Gates) == 0 {
		return "; no step waits at a gate now"
	}
	text := "; at a gate: " + strings.Join(gateSteps(s), ", ")
	if s.MoreGates > 0 {
		text += fmt.Sprintf(" and %d more", s.MoreGates)
	}
	return text
}

// confirm returns nil if the flags, or else a person at the terminal, agree to what was shown.
func (p *program) confirm(f decisionFlags, shown activities.Digest, question string) error {
	switch {
	case f.digest != "" && f.digest != string(shown):
		return usage.Errorf("--digest %s is out of date, it is now %s: nothing was sent; look at the change again", f.digest,
			shown)
	case f.digest != "" || f.yes:
		return nil
	case !terminal.IsTerminal(p.streams.In):
		return usage.Errorf(
			"the standard input is not a terminal, so nobody can be asked: nothing was sent; give --digest %s to decide "+
				"about exactly this, or --yes", shown)
	}
	p.printf("%s [y/N] ", question)
	answer, err := bufio.NewReader(p.streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("not confirmed: nothing was sent")
	}
	return nil
}

// currentUser is USER@HOST: a claim, not a proof.
func currentUser() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if machine, err := os.Hostname(); err == nil {
		name += "@" + machine
	}
	return name
}
