package command

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/sign"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// allowFlags say what is allowed, but for its agent.
type allowFlags struct {
	allowance activities.Allowance
	lasts     time.Duration
	risk      string
	queue     string
	sign      signFlags
}

func (p *program) allowCommand() *cobra.Command {
	var f allowFlags
	c := &cobra.Command{
		Use:     "allow AGENT --action ACTION --under RESOURCE --for TIME --uses N --why WHY",
		GroupID: groupDecide,
		Short:   "Approve ahead what an agent does, within bounds",
		Long: `Allow gives a standing approval: changes that an agent's tasks would ask you about are made without
asking, if they are of these actions, touch nothing but these resources, and are of no higher risk;
for this time, and so many times at most. The worker looks at all of it when it acts. What cannot be
undone, is always asked, or may change more than it can name is of high risk, and --risk high must
say that it is meant. What repeats an earlier step for the same purpose is asked all the same, and so
are the other persons whom a policy's rules ask for.

With --key (or UNWIND_KEY) it is signed; where a worker's config has approvals it must be. "starter
allowances" lists what is allowed, and "starter disallow ID" revokes it at once.

` + exitStatuses,
		Example: `  starter allow release-bot --action file.write --under /srv/site --for 1h --uses 50 --why "the release"
  starter allow dba-bot --action 'postgres.*' --under postgres:shop --for 30m --uses 3 --risk high \
    --why "migration 42" --key ~/.ssh/id_ed25519 --as ann`,
		Args: exactArguments("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.lasts == 0 {
				return usage.Errorf("--for is missing: say how long it counts, at most 168h")
			}
			a, err := f.sign.signAllowance(f.made(args[0]))
			if err != nil {
				return err
			}
			return p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
				g, err := c.Allow(ctx, p.queueOr(f.queue), a)
				if err != nil {
					return err
				}
				render.Allowances(p.streams.Out, []activities.GivenAllowance{g})
				p.printf("revoke it with: starter disallow %s\n", g.ID)
				return nil
			})(cmd, args)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&f.allowance.Actions, "action", nil,
		"an `action`, or world.* for all of a world; may be repeated")
	flags.StringArrayVar(&f.allowance.Under, "under", nil,
		"a `resource` as gates name it, or a path: what is below it is covered too; may be repeated")
	flags.StringArrayVar(&f.allowance.Tasks, "task", nil, "only for the task with this `id`; may be repeated")
	flags.StringVar(&f.risk, "risk", string(activities.Medium), "the highest `risk`: low, medium or high")
	flags.Var((*durationFlag)(&f.lasts), "for", "how long it counts, a `duration` of at most 168h")
	flags.IntVar(&f.allowance.Uses, "uses", 0, "for how many changes it counts, at most 100")
	flags.StringVar(&f.allowance.Why, "why", "", "`reason`, kept with it")
	addQueue(c, &f.queue)
	f.sign.addTo(c)
	return c
}

// made is the allowance that the flags describe.
func (f allowFlags) made(agent string) activities.Allowance {
	a := f.allowance
	a.Agent, a.Risk, a.At = agent, activities.Risk(f.risk), now()
	a.Until = a.At.Add(f.lasts)
	a.Under = nil
	for _, name := range f.allowance.Under {
		if path.IsAbs(name) {
			name = "file:" + path.Clean(name)
		}
		a.Under = append(a.Under, name)
	}
	return a
}

// signAllowance signs a standing approval, if a key is given.
func (f signFlags) signAllowance(a activities.Allowance) (protocol.SignedAllowance, error) {
	a.Who = currentUser()
	f, isAsked := f.withDefaults(false)
	if isAsked {
		a.Who = f.as
	}
	if strings.TrimSpace(a.Why) == "" {
		return protocol.SignedAllowance{}, usage.Errorf("--why is empty: say why; it is kept with the standing approval")
	}
	if err := a.Check(); err != nil || !isAsked {
		if err != nil {
			err = usage.Errorf("%w: nothing was allowed", err)
		}
		return protocol.SignedAllowance{Allowance: a}, err
	}
	signature, err := sign.Text(f.key, a)
	if err != nil {
		return protocol.SignedAllowance{}, usage.Errorf("it could not be signed, and nothing was allowed: %w", err)
	}
	return protocol.SignedAllowance{Allowance: a, Signature: signature}, nil
}

func (p *program) allowancesCommand() *cobra.Command {
	var queue string
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "allowances",
		GroupID: groupDecide,
		Short:   "List what is approved ahead, and where that was used",
		Long: `Allowances lists the standing approvals that were given with "starter allow", the oldest first: who
gave it, what it covers, until when, and which steps have used it. One is listed for a day after its
end.

` + exitStatuses,
		Example: `  starter allowances
  starter allowances -o json | jq -r '.[] | select(.revoked | not) | .id'`,
		Args: noArguments,
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
			given, err := c.Allowances(ctx, p.queueOr(queue))
			switch {
			case err != nil:
				return err
			case output == "json":
				return p.printJSON(append([]activities.GivenAllowance{}, given...))
			case len(given) == 0:
				p.printf("no standing approvals\n")
			}
			render.Allowances(p.streams.Out, given)
			return nil
		}),
	}
	addQueue(c, &queue)
	output.addTo(c)
	return c
}

func (p *program) disallowCommand() *cobra.Command {
	var queue, why string
	c := &cobra.Command{
		Use:     "disallow ID",
		GroupID: groupDecide,
		Short:   "Revoke what was approved ahead, at once",
		Long: `Disallow revokes a standing approval: no further step acts by it. A step that has begun is finished.
Anybody may revoke; it is not signed, for it lets nothing happen.

` + exitStatuses,
		Example: `  starter disallow 3f2a90aa12cd --why "the release is over"`,
		Args:    exactArguments("ID"),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			g, err := c.Disallow(ctx, p.queueOr(queue), protocol.Disallowing{ID: args[0], Who: currentUser(), Why: why})
			if err != nil {
				return err
			}
			p.printf("standing approval %s of agent %s is revoked; used: %d of %d\n", g.ID, g.Agent, len(g.Used),
				g.Uses)
			return nil
		}),
	}
	c.Flags().StringVar(&why, "why", "", "`reason`, kept with it")
	addQueue(c, &queue)
	return c
}

func addQueue(c *cobra.Command, queue *string) {
	c.Flags().StringVar(queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
}

// queueOr is the shared queue, unless another one is given.
func (p *program) queueOr(given string) string {
	if given != "" {
		return given
	}
	return p.sharedQueue()
}
