package command

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// reportStarted prints what was started, and follows it if watch is set.
func (p *program) reportStarted(ctx context.Context, c *tasks.Client, run recovery.Run, what string,
	f followFlags) error {
	t, err := c.Describe(ctx, run.WorkflowID)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return p.printStarted(ctx, c, t)
	}
	p.printf("%s\n", what)
	if link := c.RunLink(run.WorkflowID, run.RunID); link != "" {
		p.printf("see %s\n", link)
	}
	if f.watch {
		return p.followTask(ctx, c, t, f)
	}
	if !c.HasWorker(ctx, t.Queue) {
		fmt.Fprintf(p.streams.Err, "started, but waiting: %s\n", tasks.NoWorker(t))
	}
	p.printf("follow it: starter watch %s\n", terminal.ShellQuote(t.ID))
	return nil
}
