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
		Long: `Cancel asks a task to end: the step that runs is stopped, and every step that acted is taken back. Cancelling a task that
unwinds already changes nothing.

` + exitStatuses,
		Example:           `  starter cancel release-k3x9q2 && starter watch release-k3x9q2`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{}, nil),
		RunE: p.onTask(func(ctx context.Context, c *connection, t taskRun) error {
			switch {
			case t.closed():
				return usagef("task %s is closed: there is nothing to cancel; see it with `starter show %s`", t.ID, quoted(t.ID))
			case t.Type == workflows.RecoverType || t.Type == workflows.RollbackType:
				return usagef("%s takes a task back, and goes on until that is done: there is nothing to cancel", t.ID)
			}
			if err := c.CancelWorkflow(ctx, t.ID, t.RunID); err != nil {
				return fmt.Errorf("cancel task %s: %w", t.ID, err)
			}
			p.printf("task %s is asked to end; it unwinds\nfollow it: starter watch %s\n", t.ID, quoted(t.ID))
			return nil
		}),
	}
}
