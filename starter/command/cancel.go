package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
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
			switch {
			case t.Closed():
				return usage.Errorf("task %s is closed: there is nothing to cancel; see it with `starter show %s`", t.ID,
					terminal.ShellQuote(t.ID))
			case t.Type == protocol.RecoverType || t.Type == protocol.RollbackType:
				return usage.Errorf("%s undoes a task and cannot be cancelled: it ends when everything is undone", t.ID)
			}
			if err := c.CheckTakesDecisions(ctx, t); err != nil {
				return err
			}
			if err := c.CancelWorkflow(ctx, t.ID, t.RunID); err != nil {
				return fmt.Errorf("cancel task %s: %w", t.ID, err)
			}
			p.printf("task %s is being cancelled; it unwinds\nfollow it: starter watch %s\n", t.ID, terminal.ShellQuote(t.ID))
			return nil
		}),
	}
}
