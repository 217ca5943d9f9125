package command

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

func (p *program) runCommand() *cobra.Command {
	var f struct {
		fileFlags
		followFlags
		id, agent, queue string
	}
	c := &cobra.Command{
		Use:     "run FILE",
		GroupID: groupTasks,
		Short:   "Run a task",
		Long: `Run starts the task of a file (- is the standard input) and prints its id.

An id is used once: the same file run twice is two tasks, under two ids. With --watch, run follows
the task until its end, like "starter watch"; without it, run returns as soon as a worker has
accepted the task, or after 5 s without one.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter run release.yaml
  starter run release.yaml --watch --var version=1.4.2
  starter run release.yaml --id release-1.4.2 --agent release-bot`,
		Args: exactArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkOutput(); err != nil {
				return err
			}
			file, err := p.readTaskFile(args[0], f.fileFlags)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := p.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			t, err := c.Start(ctx, file, tasks.StartOptions{ID: f.id, Agent: f.agent, Queue: cmp.Or(f.queue, p.sharedQueue())})
			if err != nil {
				return err
			}
			if f.output == "json" {
				if _, err := c.AwaitAcceptance(ctx, t, file); err != nil {
					return err
				}
				return p.printStarted(ctx, c, t)
			}
			p.printf("task %s\n", t.ID)
			if link := c.RunLink(t.ID, t.RunID); link != "" {
				p.printf("see  %s\n", link)
			}
			if f.watch {
				f.cite = file.Cite
				return p.followTask(ctx, c, t, f.followFlags)
			}
			waits, err := c.AwaitAcceptance(ctx, t, file)
			if err != nil {
				return err
			}
			if waits != "" {
				fmt.Fprintf(p.streams.Err, "started, but waiting: %s\n", waits)
			}
			p.printf("follow it:          starter watch %s\n", terminal.ShellQuote(t.ID))
			for _, s := range file.Compiled.Steps {
				if s.Gate.Plans() {
					p.printf("approve at a gate:  starter approve %s STEP\n", terminal.ShellQuote(t.ID))
					break
				}
			}
			return nil
		},
	}
	f.fileFlags.addTo(c)
	f.followFlags.addTo(c)
	c.Flags().StringVar(&f.id, "id", "", "`id` of the task (default its name with a random end)")
	c.Flags().StringVar(&f.agent, "agent", "", "`name` of the agent that runs it, for lists")
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	return c
}
