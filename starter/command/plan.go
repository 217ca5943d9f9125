package command

import (
	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/render"
)

func (p *program) planCommand() *cobra.Command {
	var f struct {
		fileFlags
		queue string
	}
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "plan FILE",
		GroupID: groupLook,
		Short:   "Show what a task would do, and how each step would be undone",
		Long: `Plan has a worker plan every step of a task file (- is the standard input) against the world as it
is, and touches nothing. For each step it prints the change, its diff, the risk, how it would be
undone, what an undo would not bring back, and whether a person would be asked. What depends on the
outputs of earlier steps cannot be known before they have run.

A step that is certain to be refused makes the exit status 2: the task would be refused before
anything is touched.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter plan release.yaml
  starter plan release.yaml -o json | jq '.steps[] | select(.asks)'`,
		Args: exactArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := p.readTaskFile(args[0], f.fileFlags)
			if err != nil {
				return err
			}
			c, err := p.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if f.queue == "" {
				f.queue = p.sharedQueue()
			}
			plan, err := c.Plan(cmd.Context(), file, f.queue, p.streams.Err)
			if err != nil {
				return err
			}
			if output == "json" {
				err = p.printJSON(plan)
			} else {
				render.Plan(p.streams.Out, plan)
			}
			if err != nil {
				return err
			}
			var refusals []activities.Refusal
			for _, s := range plan.Steps {
				if s.Refused != "" {
					refusals = append(refusals, activities.Refusal{Step: s.ID, Message: s.Refused})
				}
			}
			return file.Refusal(refusals...)
		},
	}
	f.addTo(c)
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	output.addTo(c)
	return c
}
