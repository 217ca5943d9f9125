package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func (p *program) recover() *cobra.Command {
	var takeOver, watch bool
	c := &cobra.Command{
		Use:     "recover ID",
		GroupID: groupAfter,
		Short:   "Unwind a task that ended without unwinding",
		Long: `Recover unwinds a task that was terminated, timed out or ended by the server: it rebuilds the ledger from the history and
undoes every step that may have acted, last in first out. A recovery that was itself terminated is recovered in the same
way. Workers look for such tasks every few minutes (the Schedule QUEUE-sweep); this does it at once.

With --take-over, a task that is still running but stuck (because its code changed, say) is terminated first. To unwind a
task that is running normally, use "starter cancel".

The history must still be there, so the retention of the namespace must be longer than a dead task may stay unnoticed. A
recovery that waits for a person may wait longer: its own history holds the ledger.

` + exitStatuses,
		Example: `  starter recover release-k3x9q2 --watch
  starter recover release-k3x9q2 --take-over`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{dead: true}, nil),
		RunE: p.online(func(ctx context.Context, c *connection, args []string) error {
			find := c.after().Find
			if takeOver {
				find = func(ctx context.Context, id string) (recovery.Run, error) {
					return c.after().TakeOver(ctx, id, who(), payloads())
				}
			}
			dead, err := find(ctx, args[0])
			if recovery.WhyOf(err) == recovery.Alive && !takeOver {
				return usagef("%w: `starter cancel %s`, or `starter recover %s --take-over`", err, quoted(args[0]), quoted(args[0]))
			}
			if err != nil {
				return refusal(err)
			}
			// Whether the workers' data converter can read it is for the one to find out that recovers it.
			if err := c.after().Readable(ctx, dead, payloads()); err != nil && recovery.WhyOf(err) != recovery.Unreadable {
				return refusal(err)
			}
			run, err := c.after().Recover(ctx, dead, who())
			if err != nil {
				return refusal(err)
			}
			return p.started(ctx, c, run, fmt.Sprintf("%s was %s; %s unwinds it", dead.WorkflowID, dead.Ending(), run.WorkflowID), watch)
		}),
	}
	c.Flags().BoolVar(&takeOver, "take-over", false, "terminate the task first if it runs")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow it until its end")
	return c
}
