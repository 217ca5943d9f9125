package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func (p *program) redoCommand() *cobra.Command {
	var f followFlags
	c := &cobra.Command{
		Use:     "redo ID",
		GroupID: groupAfter,
		Short:   "Reverse a rollback",
		Long: `Redo reverses a rollback, while the undo records are kept: file.* and container.exec get back
exactly what was undone; other steps run again, and what they create has new ids. ID is the task, or
one of its rollbacks if several parts were rolled back.

` + exitStatuses,
		Example: `  starter redo release-k3x9q2 --watch`,
		Args:    exactArguments("ID"),
		ValidArgsFunction: p.completeTask(tasks.Filter{Types: []string{protocol.RollbackType},
			Status: string(compensations.Unwound)}, nil),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			if err := f.checkOutput(); err != nil {
				return err
			}
			run, rollback, err := c.Redo(ctx, args[0], currentUser())
			if err != nil {
				return err
			}
			return p.reportStarted(ctx, c, run, fmt.Sprintf("%s reverses %s", run.WorkflowID, rollback.WorkflowID), f)
		}),
	}
	f.addTo(c)
	return c
}
