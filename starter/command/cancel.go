package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

func (p *program) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel ID",
		GroupID: groupDecide,
		Short:   "Cancel a task; it unwinds",
		Long: `Cancel stops a task: the running step is stopped, and every step that acted is undone. Cancelling a
task that is already unwinding changes nothing.

` + exitStatuses,
		Example:           `  starter cancel release-k3x9q2 && starter watch release-k3x9q2`,
		Args:              exactArguments("ID"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, nil),
		RunE: p.withTask(func(ctx context.Context, c *tasks.Client, t tasks.Run) error {
			if err := c.Cancel(ctx, t); err != nil {
				return err
			}
			p.printf("task %s is being cancelled; it unwinds\nfollow it: starter watch %s\n", t.ID, terminal.ShellQuote(t.ID))
			return nil
		}),
	}
}
