package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) redo() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:     "redo ID",
		GroupID: groupAfter,
		Short:   "Take a rollback back",
		Long: `Redo takes a rollback back, while the undo records are kept: files and containers get back exactly what was taken away;
other resources are created again, with new ids. ID is the task, or one of its rollbacks if several parts were rolled back.

` + exitStatuses,
		Example:           `  starter redo release-k3x9q2 --watch`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{types: []string{workflows.RollbackType}, status: string(compensations.Unwound)}, nil),
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			rollback, err := c.after().FindRollback(ctx, args[0])
			if err != nil {
				return refusal(err)
			}
			run, err := c.after().Redo(ctx, rollback, who(), payloads())
			if err != nil {
				return refusal(err)
			}
			return p.started(ctx, c, run, fmt.Sprintf("%s takes %s back", run.WorkflowID, rollback.WorkflowID), watch)
		}),
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow it until its end")
	return c
}
