package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
)

func (p *program) recoverCommand() *cobra.Command {
	var takeOver bool
	var f followFlags
	c := &cobra.Command{
		Use:     "recover ID",
		GroupID: groupAfter,
		Short:   "Unwind a task that ended without unwinding",
		Long: `Recover unwinds a task that was terminated, timed out or ended by the server: it rebuilds the ledger
from the history and undoes every step that may have acted, last in first out. A recovery that was
itself terminated is recovered in the same way. Workers look for such tasks every few minutes (the
Schedule QUEUE-sweep); this does it at once.

With --take-over, a task that is still running but stuck (because its code changed, say) is
terminated first, and so is one that is paused. To unwind a task that is running normally, use
"starter cancel".

The history must still be there, so the retention of the namespace must be longer than a dead task
may stay unnoticed. A recovery that waits for a person may wait longer: its own history holds the
ledger.

` + exitStatuses,
		Example: `  starter recover release-k3x9q2 --watch
  starter recover release-k3x9q2 --take-over`,
		Args:              exactArguments("ID"),
		ValidArgsFunction: p.completeTask(tasks.Filter{Dead: true}, nil),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			if err := f.checkOutput(); err != nil {
				return err
			}
			run, dead, err := c.Recover(ctx, args[0], takeOver, currentUser())
			if err != nil {
				return err
			}
			return p.reportStarted(ctx, c, run,
				fmt.Sprintf("%s was %s; %s unwinds it", dead.WorkflowID, dead.Ending(), run.WorkflowID), f)
		}),
	}
	c.Flags().BoolVar(&takeOver, "take-over", false, "terminate the task first if it runs")
	f.addTo(c)
	return c
}
