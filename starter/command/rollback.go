package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func (p *program) rollback() *cobra.Command {
	var part recovery.Part
	var why string
	var watch bool
	c := &cobra.Command{
		Use:     "rollback ID",
		GroupID: groupAfter,
		Short:   "Take a committed task back, or a part of it",
		Long: `Rollback undoes a task that has committed, last in first out, while its undo records are kept: for an hour, unless its
task file says otherwise (keep:). It does not overwrite what somebody else has changed since: that undo parks and asks.

  --to     undo only what was done after that savepoint
  --step   undo only that step, and all that depends on it

"starter redo" takes a rollback back.

` + exitStatuses,
		Example: `  starter rollback release-k3x9q2 --watch
  starter rollback release-k3x9q2 --to tested
  starter rollback release-k3x9q2 --step go-live --why "wrong banner"`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{types: recovery.GoForward, status: string(compensations.Committed)}, nil),
		PreRunE: func(*cobra.Command, []string) error {
			if part.To != "" && part.Step != "" {
				return usagef("give --to or --step, not both")
			}
			return nil
		},
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			done, err := c.after().FindDone(ctx, args[0])
			if err != nil {
				return refusal(err)
			}
			run, err := c.after().Rollback(ctx, done, part, who(), why, payloads())
			if err != nil {
				return refusal(err)
			}
			return p.started(ctx, c, run, fmt.Sprintf("%s rolls task %s back", run.WorkflowID, done.WorkflowID), watch)
		}),
	}
	c.Flags().StringVar(&part.To, "to", "", "undo only what was done after this `savepoint`")
	c.Flags().StringVar(&part.Step, "step", "", "undo only this `step` and what depends on it")
	c.Flags().StringVar(&why, "why", "", "`reason`, kept in the report")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow it until its end")
	return c
}
