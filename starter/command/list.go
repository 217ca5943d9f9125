package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
)

func (p *program) listCommand() *cobra.Command {
	var f tasks.Filter
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "list",
		GroupID: groupTasks,
		Short:   "List tasks, the newest first",
		Long: `List prints the tasks of the namespace that the Temporal server still keeps, with their recoveries,
rollbacks and redos. STATUS is how a task stands now: one that was rolled back says so. What is too
long for 120 columns is cut. "starter show TASK" lists what was done about a task, with the ids; -o
json has all of it. The columns come from search attributes, which lag by about a second.

` + exitStatuses,
		Example: `  starter list
  starter list --needs-person                      # those that wait at a gate, or with something parked
  starter list --since 24h -o json | jq -r '.[] | select(.now) | .id'
  starter list --status unwound-with-remains --agent release-bot`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Status != "" && !slices.Contains(tasks.Statuses, f.Status) {
				return usage.Errorf("--status %q: give one of %s", f.Status, strings.Join(tasks.Statuses, ", "))
			}
			if f.Limit < 1 {
				return usage.Errorf("--limit %d: give at least 1", f.Limit)
			}
			c, err := p.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			list, err := c.List(cmd.Context(), f)
			if err != nil {
				return err
			}
			for _, what := range list.Unknown {
				fmt.Fprintln(p.streams.Err, "note:", what)
			}
			if output == "json" {
				if list.More {
					fmt.Fprintln(p.streams.Err, "there are more; see them with --limit")
				}
				return p.printJSON(append([]tasks.Listed{}, list.Tasks...))
			}
			if len(list.Tasks) == 0 {
				p.printf("no matching tasks in namespace %s of %s\n", c.Namespace, c.Address)
				return nil
			}
			render.Tasks(p.streams.Out, list.Tasks)
			if list.More {
				p.printf("... more; see them with --limit\n")
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.Status, "status", "", "only tasks of this `status`: "+strings.Join(tasks.Statuses, ", "))
	c.Flags().StringVar(&f.Agent, "agent", "", "only tasks of this agent, by its `name`")
	c.Flags().BoolVar(&f.Gate, "gate", false, "only tasks that wait at a gate")
	c.Flags().BoolVar(&f.Parked, "parked", false, "only tasks with an undo or a step that is parked")
	c.Flags().BoolVar(&f.NeedsPerson, "needs-person", false, "only tasks that wait for a person: at a gate or parked")
	c.Flags().Var((*durationFlag)(&f.Since), "since", "only tasks that were started within this `duration`, such as 24h")
	output.addTo(c)
	c.Flags().IntVar(&f.Limit, "limit", 50, "list at most `n`")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(tasks.Statuses, cobra.ShellCompDirectiveNoFileComp))
	return c
}
