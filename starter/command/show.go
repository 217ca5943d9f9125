package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
)

func (p *program) showCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "show ID [STEP]",
		GroupID: groupTasks,
		Short:   "Show the state of a task, or one step with its outputs",
		Long: `Show prints a task as it is now: its steps, the gates and the undos that wait for a person, its
report once there is one, and what was done about it after its end, with the command that takes the
last of it back.

With STEP it prints that step alone, with its outputs: what a command has written, the ids of what
was made. As JSON, the whole task has its outputs too, the long ones cut in their middle.

A closed task is shown from its result, and an open one without a worker from its history.

` + exitStatuses,
		Example: `  starter show release-k3x9q2
  starter show release-k3x9q2 migrate
  starter show release-k3x9q2 -o json | jq .report.outcomes`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return exactArguments("ID", "STEP")(c, args)
			}
			return exactArguments("ID")(c, args)
		},
		ValidArgsFunction: p.completeTask(tasks.Filter{}, nil),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			t, err := c.Describe(ctx, args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				step, err := c.Step(ctx, t, args[1])
				if err != nil {
					return err
				}
				if output == "json" {
					return p.printJSON(step)
				}
				render.Step(p.streams.Out, t, step)
				return nil
			}
			if output == "json" {
				s, err := c.WholeStanding(ctx, t)
				if err != nil {
					return err
				}
				return p.printJSON(s)
			}
			s, err := c.Standing(ctx, t)
			if err != nil {
				return err
			}
			render.Standing(p.streams.Out, c.Server, t, s)
			return nil
		}),
	}
	output.addTo(c)
	return c
}
