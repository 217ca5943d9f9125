package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) watch() *cobra.Command {
	return &cobra.Command{
		Use:     "watch ID",
		GroupID: groupTasks,
		Short:   "Follow a task until its end",
		Long: `Watch follows a task until it is closed, and then shows its report. On a terminal it redraws one view; elsewhere it prints a
line for each event. It shows a gate with the change and the ways to approve it, and a parked undo with the command that
resolves it.

Ctrl-C stops watching; the task goes on.

` + exitStatuses,
		Example: `  starter watch release-k3x9q2
  starter watch release-k3x9q2 | tee release.log`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{}, nil),
		RunE: p.onTask(func(ctx context.Context, c *connection, t taskRun) error {
			p.printf("%s\n", title(t, workflows.State{}))
			if link := c.link(t.ID, t.RunID); link != "" {
				p.printf("see %s\n", link)
			}
			return p.follow(ctx, c, t)
		}),
	}
}

// follow shows a task until its end and prints its report. It is an error if the task did not commit.
func (p *program) follow(ctx context.Context, c *connection, t taskRun) error {
	var e ending
	var err error
	if t.closed() {
		e, err = c.end(ctx, t.ID, t.RunID)
	} else {
		e, err = c.follow(ctx, t, newView(c, t, p.streams.Out))
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			fmt.Fprintf(p.streams.Err, "the task goes on; follow it with: starter watch %s\n", quoted(t.ID))
		}
		return err
	}
	return p.reportEnd(t, e)
}

// reportEnd prints how a task ended; an error where it did not commit.
func (p *program) reportEnd(t taskRun, e ending) error {
	if e.Report != nil {
		p.printf("\n")
		writeReport(p.streams.Out, *e.Report)
	}
	switch {
	case e.Failure != "":
		return fmt.Errorf("task %s: %s", t.ID, oneLine(e.Failure))
	case e.Report != nil && e.Report.Status == compensations.Remains:
		return fmt.Errorf("task %s: not everything is as it was before", t.ID)
	}
	return nil
}
