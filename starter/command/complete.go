package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// completionLimit bounds how long a shell waits for a completion.
const completionLimit = 2 * time.Second

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeTask completes the id of a task, and then a step if steps is set: it lists a task's steps
// to choose from.
func (p *program) completeTask(of tasks.Filter, steps func(protocol.State) []string) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completionLimit)
		defer cancel()
		if len(args) > 1 || len(args) == 1 && steps == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := p.connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		if len(args) == 1 {
			s, err := c.QueryState(ctx, args[0], "")
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return steps(s), cobra.ShellCompDirectiveNoFileComp
		}
		of.Limit = 100
		if steps != nil {
			of.Status = string(compensations.Open) // only these wait for a decision
		}
		ids, err := c.ListIDs(ctx, of)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

func gateSteps(s protocol.State) []string {
	var steps []string
	for _, g := range s.Gates {
		steps = append(steps, g.Step)
	}
	return steps
}

func parkedSteps(s protocol.State) []string {
	var steps []string
	for _, p := range s.Parks {
		steps = append(steps, p.Step)
	}
	if s.Report == nil {
		return steps
	}
	for _, r := range s.Report.Steps {
		if resolvable(r) {
			steps = append(steps, r.Step)
		}
	}
	return steps
}
