package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"golang.org/x/term"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows"
)

// consent are the flags of a decision about something that is shown first.
type consent struct {
	digest, why string
	yes         bool
}

func (f *consent) add(c *cobra.Command) {
	c.Flags().StringVar(&f.digest, "digest", "", "decide without being asked, but only about what has this `digest`")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "decide without being asked, about whatever is there")
	c.Flags().StringVar(&f.why, "why", "", "`reason`, kept with the decision")
}

func (p *program) approve() *cobra.Command {
	var f consent
	c := &cobra.Command{
		Use:     "approve ID STEP",
		GroupID: groupDecide,
		Short:   "Approve what waits at a step's gate",
		Long: `Approve shows the change that waits at the gate of a step, asks, and sends the signal "approve" with the digest of
that change: if the change is different by then, the approval has no effect. It waits until the task has acted on it.

In a script, where nobody can be asked, give --digest (from "starter show ID -o json": .gates[].digest) to approve exactly
one change, or --yes to approve whatever is there.

The signal can be sent by other means too; its payload is {"step": ..., "digest": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example: `  starter approve release-k3x9q2 publish
  starter approve release-k3x9q2 publish --yes --why "tested on staging"
  starter approve release-k3x9q2 publish --digest sha256:1f0c...`,
		Args:              exactly("ID", "STEP"),
		ValidArgsFunction: p.completeTask(filter{}, gateSteps),
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			return p.decideGate(ctx, c, args[0], args[1], true, f)
		}),
	}
	f.add(c)
	return c
}

func (p *program) reject() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "reject ID STEP --reason WHY",
		GroupID: groupDecide,
		Short:   "Reject what waits at a step's gate; the task unwinds",
		Long: `Reject sends the signal "reject" for the gate that a step waits at, with the reason. The task then unwinds: every step that
acted is undone. It waits until the task has acted on it.

The signal can be sent by other means too; its payload is {"step": ..., "digest": ..., "who": ..., "why": ...}.

` + exitStatuses,
		Example:           `  starter reject release-k3x9q2 publish --reason "not on a Friday"`,
		Args:              exactly("ID", "STEP"),
		ValidArgsFunction: p.completeTask(filter{}, gateSteps),
		PreRunE: func(*cobra.Command, []string) error {
			if strings.TrimSpace(reason) == "" {
				return usagef("--reason is missing: say why, it stands in the report")
			}
			return nil
		},
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			return p.decideGate(ctx, c, args[0], args[1], false, consent{why: reason, yes: true})
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "`why`; required")
	return c
}

// decideGate shows what waits at a gate, asks unless told not to, and sends the decision.
func (p *program) decideGate(ctx context.Context, c *connection, id, step string, approve bool, f consent) error {
	t, s, err := c.running(ctx, id)
	if err != nil {
		return err
	}
	g, err := gateOf(s, step)
	if err != nil {
		return err
	}
	writeGate(p.streams.Out, g)
	if approve {
		if err := p.consents(f, g.Digest, "approve it?"); err != nil {
			return err
		}
	}
	d := workflows.Decision{Step: step, Digest: g.Digest, Who: who(), Why: f.why}
	if err := c.decide(ctx, t, d, approve); err != nil {
		return err
	}
	if approve {
		p.printf("approved: step %s of task %s goes on\n", step, t.ID)
	} else {
		p.printf("rejected: task %s unwinds\n", t.ID)
	}
	return nil
}

// running is an open task with its state; what it waits for cannot be shown without a worker.
func (c *connection) running(ctx context.Context, id string) (taskRun, workflows.State, error) {
	t, err := c.describe(ctx, id)
	if err != nil {
		return t, workflows.State{}, err
	}
	if t.closed() {
		return t, workflows.State{}, c.elsewhere(ctx, t)
	}
	s, err := c.state(ctx, t.ID, t.RunID)
	if why, silent := silence(err, t); silent {
		err = fmt.Errorf("what waits at task %s cannot be shown, so nothing was sent: %s", id, why)
	}
	return t, s, err
}

// elsewhere says that nothing waits at a task that is closed, and what owns its ledger where something does.
func (c *connection) elsewhere(ctx context.Context, t taskRun) error {
	run, err := c.after().Describe(ctx, t.ID, t.RunID)
	if err != nil {
		return refusal(err)
	}
	last, err := c.after().LastRecovery(ctx, run)
	if err != nil {
		return refusal(err)
	}
	if last.Alive() {
		return usagef("task %s is closed: nothing waits there, and nothing was sent; %s unwinds it, decide there", t.ID, last.WorkflowID)
	}
	return usagef("task %s is closed: nothing waits there, and nothing was sent; see it with `starter show %s`", t.ID, quoted(t.ID))
}

// gateOf is the open gate of a step.
func gateOf(s workflows.State, step string) (workflows.GateView, error) {
	for _, g := range s.Gates {
		if g.Step == step {
			return g, nil
		}
	}
	for _, v := range s.Steps {
		if v.ID == step {
			return workflows.GateView{}, usagef("step %s of task %s is not at a gate, it is %s: nothing was sent%s", step, s.Task, v.State, others(s))
		}
	}
	return workflows.GateView{}, usagef("task %s has no step %q: nothing was sent%s", s.Task, step, others(s))
}

// others names the steps that do wait at a gate.
func others(s workflows.State) string {
	if len(s.Gates) == 0 {
		return "; no step waits at a gate now"
	}
	return "; at a gate: " + strings.Join(gateSteps(s), ", ")
}

// consents makes sure that a person wants what was shown, or that the flags say so.
func (p *program) consents(f consent, shown activities.Digest, question string) error {
	switch {
	case f.digest != "" && f.digest != string(shown):
		return usagef("--digest %s is out of date, it is now %s: nothing was sent; look at the change again", f.digest, shown)
	case f.digest != "" || f.yes:
		return nil
	case !isTerminal(p.streams.In):
		return usagef("the standard input is not a terminal, so nobody can be asked: nothing was sent; give --digest %s to decide about exactly this, or --yes", shown)
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

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// who is the person at this machine, as a claim.
func who() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if machine, err := os.Hostname(); err == nil {
		name += "@" + machine
	}
	return name
}

// effectLimit is how long a command waits to see what its signal did.
const effectLimit = 10 * time.Second

// decide sends a decision to a gate and waits until it took effect, which the step's notes or the cause tell.
func (c *connection) decide(ctx context.Context, t taskRun, d workflows.Decision, approve bool) error {
	name, taken := workflows.SignalReject, func(s workflows.State) bool {
		return s.Cause != nil && s.Cause.Step == d.Step && strings.Contains(s.Cause.Text, "rejected by "+d.Who)
	}
	if approve {
		name, taken = workflows.SignalApprove, func(s workflows.State) bool {
			for _, v := range s.Steps {
				if v.ID == d.Step {
					return slices.Contains(v.Notes, "approved by "+d.Who) && !waits(s, d.Digest)
				}
			}
			return false
		}
	}
	return c.signal(ctx, t, name, d, taken)
}

func waits(s workflows.State, gate activities.Digest) bool {
	return slices.ContainsFunc(s.Gates, func(g workflows.GateView) bool { return g.Digest == gate })
}

// signal sends a signal and waits until the state shows that it was taken, or that it decided nothing.
func (c *connection) signal(ctx context.Context, t taskRun, name string, payload any, taken func(workflows.State) bool) error {
	before, err := c.state(ctx, t.ID, t.RunID)
	if err != nil {
		return err
	}
	err = c.SignalWorkflow(ctx, t.ID, t.RunID, name, payload)
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return fmt.Errorf("task %s closed in the meantime: the signal %s was not received", t.ID, name)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	limited, cancel := context.WithTimeout(ctx, effectLimit)
	defer cancel()
	for limited.Err() == nil {
		s, err := c.state(limited, t.ID, t.RunID)
		if err == nil {
			for _, why := range s.Ignored[min(len(before.Ignored), len(s.Ignored)):] {
				if strings.HasPrefix(why, name+": ") {
					return fmt.Errorf("the signal decided nothing: %s", why)
				}
			}
			if taken(s) {
				return nil
			}
		}
		pause(limited, 50*time.Millisecond)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the signal %s was sent, but the task has not acted on it within %s; see `starter show %s`", name, effectLimit, quoted(t.ID))
}
