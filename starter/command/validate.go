package command

import (
	"github.com/spf13/cobra"
)

func (p *program) validate() *cobra.Command {
	var f checking
	c := &cobra.Command{
		Use:     "validate FILE",
		GroupID: groupLook,
		Short:   "Check a task file",
		Long: `Validate checks a task file (- is the standard input) and touches nothing; it needs no server.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter validate release.yaml
  starter validate release.yaml --config worker.yaml`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := p.read(args[0], f)
			if err != nil {
				return err
			}
			p.printf("%s: task %q is valid: %s\n", args[0], file.compiled.Name, count(len(file.compiled.Steps), "step"))
			return nil
		},
	}
	f.add(c)
	return c
}
