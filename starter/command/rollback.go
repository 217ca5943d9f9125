package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func (p *program) rollbackCommand() *cobra.Command {
	var part recovery.Part
	var why string
	var f followFlags
	c := &cobra.Command{
		Use:     "rollback ID",
		GroupID: groupAfter,
		Short:   "Undo a committed task, or a part of it",
		Long: `Rollback undoes a task that has committed, last in first out, while its undo records are kept: for
an hour, unless its task file says otherwise (keep:). It does not overwrite what somebody else has
changed since: that undo parks and asks.

  --to     undo only what was done after that savepoint
  --step   undo only that step, and all that depends on it

What was redone since is rolled back where its redo has done it. "starter redo" reverses a rollback.

` + exitStatuses,
		Example: `  starter rollback release-k3x9q2 --watch
  starter rollback release-k3x9q2 --to tested
  starter rollback release-k3x9q2 --step go-live --why "wrong banner"`,
		Args: exactArguments("ID"),
		ValidArgsFunction: p.completeTask(tasks.Filter{Types: recovery.GoForward, Status: string(compensations.Committed)},
			nil),
		PreRunE: func(*cobra.Command, []string) error {
			if part.To != "" && part.Step != "" {
				return usage.Errorf("give --to or --step, not both")
			}
			return nil
		},
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			if err := f.checkOutput(); err != nil {
				return err
			}
			run, done, err := c.RollBack(ctx, args[0], part, currentUser(), why)
			if err != nil {
				return err
			}
			return p.reportStarted(ctx, c, run, fmt.Sprintf("%s rolls back task %s", run.WorkflowID, done.WorkflowID), f)
		}),
	}
	c.Flags().StringVar(&part.To, "to", "", "undo only what was done after this `savepoint`")
	c.Flags().StringVar(&part.Step, "step", "", "undo only this `step` and what depends on it")
	c.Flags().StringVar(&why, "why", "", "`reason`, kept in the report")
	f.addTo(c)
	return c
}
