package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func (p *program) validateCommand() *cobra.Command {
	var f struct {
		fileFlags
		queue string
	}
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "validate FILE",
		GroupID: groupLook,
		Short:   "Check a task file",
		Long: `Validate checks a task file (- is the standard input) and touches nothing.

What the task needs of its hosts (allowed paths, programs, containers, secrets) is checked by the
workers that would run it, or with --config by the config of one of them and what is on this
machine. Where no worker answers, validate says so and checks the rest.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter validate release.yaml
  starter validate release.yaml --config worker.yaml`,
		Args: exactArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.queue == "" {
				f.queue = p.sharedQueue()
			}
			valid, err := p.validateFile(cmd.Context(), args[0], f.fileFlags, f.queue)
			if output == "json" {
				if valid.Problems = problemsOf(err); err != nil && len(valid.Problems) == 0 {
					return err
				}
				return errors.Join(err, p.printJSON(valid))
			}
			if err != nil {
				return err
			}
			p.printf("%s: task %q is valid: %s\n", valid.File, valid.Name, terminal.Plural(valid.Steps, "step"))
			if valid.NotAsked != "" {
				p.printf("paths, programs, containers and secrets were not checked: %s\n", valid.NotAsked)
			}
			if len(valid.Later) > 0 {
				p.printf("checked when earlier steps have run, as far as they depend on them: %s\n",
					strings.Join(valid.Later, ", "))
			}
			for _, note := range valid.Notes {
				p.printf("note: %s\n", terminal.OneLine(note))
			}
			return nil
		},
	}
	f.addTo(c)
	output.addTo(c)
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	return c
}

// validateFile checks a task file, and has whoever can look at its steps.
func (p *program) validateFile(ctx context.Context, name string, f fileFlags, queue string) (validJSON, error) {
	valid := validJSON{File: name}
	file, err := p.readTaskFile(name, f)
	if err != nil {
		return valid, err
	}
	v, unasked, err := p.validate(ctx, file, f.config, queue)
	if err != nil {
		return valid, err
	}
	if len(v.Refusals) > 0 {
		return valid, refusedFile{file.Refusal(v.Refusals...), file.Problems(v.Refusals...)}
	}
	valid.Name, valid.Steps, valid.NotAsked, valid.Later, valid.Notes = file.Compiled.Name, len(file.Compiled.Steps),
		unasked, v.Later, v.Unseen
	return valid, nil
}

// refusedFile is the error of a file that workers would refuse.
type refusedFile struct {
	error
	problems task.Problems
}

func (r refusedFile) Unwrap() error { return r.error }

// problemsOf are the problems that an error of validateFile is about; none for another error.
func problemsOf(err error) task.Problems {
	if refused, ok := errors.AsType[refusedFile](err); ok {
		return refused.problems
	}
	problems, _ := errors.AsType[task.Problems](err)
	return problems
}

// validate has whoever can look at the steps; unasked says why nobody could.
func (p *program) validate(ctx context.Context, file tasks.File, config, queue string) (v protocol.Validation,
	unasked string, err error) {
	if config != "" {
		v, err = p.worker.validate(ctx, config, *file.Compiled, p.options.Worlds)
		return v, "", err
	}
	c, err := p.connect(ctx)
	if err != nil {
		return v, err.Error(), nil
	}
	defer c.Close()
	if !c.HasWorker(ctx, queue) {
		return v, fmt.Sprintf("no worker serves queue %s; start one, or give its --config", queue), nil
	}
	v, err = c.Validate(ctx, file, queue, p.streams.Err)
	return v, "", err
}
