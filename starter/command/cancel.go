package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) cancel() *cobra.Command {
	return &cobra.Command{
		Use:     "cancel ID",
		GroupID: groupDecide,
		Short:   "Cancel a task; it unwinds",
		Long: `Cancel stops a task: the running step is stopped, and every step that acted is undone. Cancelling a task that is already
unwinding changes nothing.

` + exitStatuses,
		Example:           `  starter cancel release-k3x9q2 && starter watch release-k3x9q2`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{}, nil),
		RunE: p.onTask(func(ctx context.Context, c *connection, t taskRun) error {
			switch {
			case t.closed():
				return usagef("task %s is closed: there is nothing to cancel; see it with `starter show %s`", t.ID, quoted(t.ID))
			case t.Type == workflows.RecoverType || t.Type == workflows.RollbackType:
				return usagef("%s undoes a task and cannot be cancelled: it ends when everything is undone", t.ID)
			}
			if err := c.CancelWorkflow(ctx, t.ID, t.RunID); err != nil {
				return fmt.Errorf("cancel task %s: %w", t.ID, err)
			}
			p.printf("task %s is being cancelled; it unwinds\nfollow it: starter watch %s\n", t.ID, quoted(t.ID))
			return nil
		}),
	}
}
