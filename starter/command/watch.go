package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/follow"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

func (p *program) watchCommand() *cobra.Command {
	var f followFlags
	c := &cobra.Command{
		Use:     "watch ID",
		GroupID: groupTasks,
		Short:   "Follow a task until its end",
		Long: `Watch follows a task until it is closed, and then shows its report. On a terminal it redraws one
view; elsewhere it prints a line for each event. It shows a gate with the change and the ways to
approve it, and a parked undo with the ways to resolve it. On a terminal it asks about both. At a
gate, y approves, "y WHY" says why, and "n WHY" rejects; at a park, type one of the choices that it
lists ("retry", "accept WHY"). Anything else decides nothing, and what waits goes on waiting when
you leave.

Ctrl-C stops watching; the task goes on. Where the standard input is no terminal, nobody can decide:
watch then ends with status 3 when the task needs a person, unless --wait is given.

` + exitStatuses,
		Example: `  starter watch release-k3x9q2
  starter watch release-k3x9q2 | tee release.log`,
		Args:              exactArguments("ID"),
		ValidArgsFunction: p.completeTask(tasks.Filter{}, nil),
		RunE: p.withTask(func(ctx context.Context, c *tasks.Client, t tasks.Run) error {
			p.printf("%s\n", render.Title(t, protocol.State{}))
			if link := c.RunLink(t.ID, t.RunID); link != "" {
				p.printf("see %s\n", link)
			}
			return p.followTask(ctx, c, t, f)
		}),
	}
	f.addLimitsTo(c)
	return c
}

// followFlags are the flags of a command that can follow a task.
type followFlags struct {
	watch, wait bool
	timeout     time.Duration
	output      outputFlag // of what was started
	// cite puts the lines of the task file into what a worker has refused; nil where there is no file.
	cite func(refusal string) string
}

func (f *followFlags) addTo(c *cobra.Command) {
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "follow it until its end, like starter watch")
	f.output = "text"
	f.output.addTo(c)
	f.addLimitsTo(c)
}

func (f *followFlags) addLimitsTo(c *cobra.Command) {
	c.Flags().BoolVar(&f.wait, "wait", false, "without a terminal, keep watching when it needs a person")
	c.Flags().Var((*durationFlag)(&f.timeout), "timeout", "stop watching after this `duration`; the task goes on")
}

// followTask shows a task until its end and prints its report. A task that did not commit is an
// error.
func (p *program) followTask(ctx context.Context, c *tasks.Client, t tasks.Run, f followFlags) error {
	var e tasks.Ending
	var err error
	if t.Closed() {
		e, err = c.AwaitEnd(ctx, t.ID, t.RunID)
	} else {
		limited, cancel := context.WithCancel(ctx) // no deadline: a call would fail with one of its own before
		defer cancel()
		if f.timeout > 0 {
			defer time.AfterFunc(f.timeout, cancel).Stop()
		}
		v, person := p.viewOf(limited, c, t)
		e, err = follow.Task(limited, c, t, v, !f.wait && !person)
		if ctx.Err() == nil && limited.Err() != nil {
			err = exit{statusTimedOut,
				fmt.Errorf("task %s is not over after %s and goes on; follow it with: starter watch %s", t.ID, f.timeout,
					terminal.ShellQuote(t.ID))}
		}
	}
	if needs, ok := errors.AsType[follow.NeedsPerson](err); ok {
		return exit{statusNeedsPerson, fmt.Errorf("task %s waits for a person: %w", t.ID, needs)}
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			fmt.Fprintf(p.streams.Err, "the task goes on; follow it with: starter watch %s\n", terminal.ShellQuote(t.ID))
		}
		return err
	}
	if refusal, refused := e.Refusal(); refused && f.cite != nil {
		return usage.Errorf("task %s was refused: %s", t.ID, f.cite(refusal))
	}
	return p.writeEnd(ctx, c, t, e)
}

// writeEnd prints the report of a task; an end other than its commit is an error.
func (p *program) writeEnd(ctx context.Context, c *tasks.Client, t tasks.Run, e tasks.Ending) error {
	if e.Report != nil {
		p.printf("\n")
		render.Report(p.streams.Out, *e.Report)
	}
	if e.Report != nil && slices.Contains(recovery.GoForward, t.Type) {
		switch e.Report.Status {
		case compensations.Committed, compensations.Partly, compensations.Redone:
			until, err := c.Horizon(ctx, t.ID, recovery.Part{})
			if err == nil && until.IsZero() {
				break
			}
			p.printf("\nto take it back while its undo records are kept: starter rollback %s\n", terminal.ShellQuote(t.ID))
		}
	}
	switch {
	case e.Failure != "":
		return fmt.Errorf("task %s: %s", t.ID, render.Reason(e.Failure))
	case e.Report != nil && e.Report.Status == compensations.Remains:
		return fmt.Errorf("task %s: not everything is as it was before", t.ID)
	}
	return nil
}
