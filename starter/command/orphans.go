package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/defaults"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// orphanFlags say whose journals are searched.
type orphanFlags struct {
	host, queue string
	output      outputFlag
}

func (f *orphanFlags) addTo(c *cobra.Command) {
	f.output = "text"
	c.Flags().StringVar(&f.host, "host", "",
		"the `host` whose journals are searched (default UNWIND_HOST, else this machine)")
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	f.output.addTo(c)
}

// askHost has the host do it.
func (p *program) askHost(ctx context.Context, c *tasks.Client, f *orphanFlags,
	r protocol.OrphansRequest) (found protocol.OrphansResult, err error) {
	if f.host == "" {
		f.host = os.Getenv("UNWIND_HOST")
	}
	if f.host == "" {
		if f.host, err = defaults.Host(); err != nil {
			return found, err
		}
	}
	if f.queue == "" {
		f.queue = p.sharedQueue()
	}
	r.Queue = task.HostQueue(f.queue, f.host)
	return c.Orphans(ctx, f.queue, r)
}

func (p *program) orphansCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "orphans",
		GroupID: groupAfter,
		Short:   "Find and undo what no task knows any more",
		Long: `An orphan is an open undo record whose task the Temporal server does not know: its history was
deleted, or the server was restored from a backup. No recovery can undo it, and retention keeps it.
"starter orphans list" lists those of a host, and "starter orphans undo" undoes one.

` + exitStatuses,
		Example: `  starter orphans list --host build-1
  starter orphans undo 0f3a7c9e51d2b86440aa9be1c7d35f20 --host build-1`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return usage.Errorf("give list or undo; see %s --help", c.CommandPath())
		},
	}
	c.AddCommand(p.listOrphansCommand(), p.undoOrphanCommand())
	return c
}

func (p *program) listOrphansCommand() *cobra.Command {
	var f orphanFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List the orphans in the journals of a host",
		Long: `List has the worker of a host look through its journals for open records whose task the server does not know.

` + exitStatuses,
		Example: `  starter orphans list --host build-1
  starter orphans list --host build-1 -o json | jq -r '.[].token'`,
		Args: noArguments,
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
			found, err := p.askHost(ctx, c, &f, protocol.OrphansRequest{})
			if err != nil {
				return err
			}
			if f.output == "json" {
				if found.More > 0 {
					fmt.Fprintf(p.streams.Err, "there are %d more\n", found.More)
				}
				return p.printJSON(found.Orphans)
			}
			if len(found.Orphans) == 0 {
				p.printf("no orphans on host %s\n", f.host)
			}
			for _, o := range found.Orphans {
				p.printf("%s  %s  step %s of %s\n", o.Token, o.Since.UTC().Format(time.RFC3339), terminal.OneLine(o.Step),
					terminal.OneLine(o.Workflow))
			}
			if found.More > 0 {
				p.printf("... and %d more\n", found.More)
			}
			return nil
		}),
	}
	f.addTo(c)
	return c
}

func (p *program) undoOrphanCommand() *cobra.Command {
	var f orphanFlags
	var yes bool
	var force, why string
	c := &cobra.Command{
		Use:   "undo TOKEN",
		Short: "Undo an orphan, as its task would have",
		Long: `Undo shows the entry that the record holds and how the world compares with it, asks, and has the
worker of the host undo the step. It is refused where the server knows the task of the record: that
task undoes it. What somebody else has changed since is not overwritten: the command shows it, and
--force with the digest of exactly that overwrites it.

Of several orphans on one resource, undo the newest first.

` + exitStatuses,
		Example: `  starter orphans undo 0f3a7c9e51d2b86440aa9be1c7d35f20 --host build-1
  starter orphans undo 0f3a7c9e51d2b86440aa9be1c7d35f20 --host build-1 --yes --why "the server was restored"`,
		Args: exactArguments("TOKEN"),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			r := protocol.OrphansRequest{Token: args[0], Force: activities.Digest(force), Who: currentUser(), Why: why}
			found, err := p.askHost(ctx, c, &f, r)
			if err != nil {
				return err
			}
			if f.output == "text" {
				p.printOrphan(*found.Orphan)
			}
			if !yes && !terminal.IsTerminal(p.streams.In) {
				return usage.Errorf(
					"the standard input is not a terminal, so nobody can be asked: nothing was touched; give --yes to undo it")
			}
			if err := p.confirm(decisionFlags{yes: yes}, "", "undo it?"); err != nil {
				return err
			}
			r.Undo = true
			if found, err = p.askHost(ctx, c, &f, r); err != nil {
				return err
			}
			return p.reportOrphan(*found.Orphan, f.output == "json")
		}),
	}
	f.addTo(c)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "undo it without being asked")
	c.Flags().StringVar(&force, "force", "", "overwrite the drift with this `digest`, and no other")
	c.Flags().StringVar(&why, "why", "", "`reason`, kept with the outcome")
	return c
}

// printOrphan shows what would be undone.
func (p *program) printOrphan(o protocol.Orphan) {
	p.printf("step %s of %s: %s, begun %s\n", terminal.OneLine(o.Step), terminal.OneLine(o.Workflow), o.Action,
		o.Since.UTC().Format(time.RFC3339))
	for _, key := range o.Keys {
		p.printf("  on    %s\n", terminal.OneLine(key))
	}
	p.printf("  seen  %s\n", terminal.OneLine(strings.TrimSuffix(string(o.Seen.State)+": "+o.Seen.Detail, ": ")))
}

// reportOrphan says how the undo of an orphan has ended.
func (p *program) reportOrphan(o protocol.Orphan, asJSON bool) error {
	u := o.Undone
	if asJSON {
		if err := p.printJSON(o); err != nil {
			return err
		}
	} else {
		p.printf("%s: %s\n", u.Outcome, terminal.OneLine(u.Observed))
		for _, loss := range u.Losses {
			p.printf("  lost  %s\n", terminal.OneLine(loss))
		}
	}
	switch {
	case u.Outcome == activities.Drifted && u.Drift != nil:
		if !asJSON {
			p.printf("%s\n", strings.TrimRight(terminal.Printable(u.Drift.Diff), "\n"))
		}
		return exit{statusNeedsPerson,
			usage.Errorf("it was changed since, and nothing was touched; to overwrite exactly that, add --force %s",
				u.Drift.Digest)}
	case !u.Outcome.Settles():
		return exit{statusFailed, usage.Errorf("it is not undone: the record stays")}
	}
	return nil
}
