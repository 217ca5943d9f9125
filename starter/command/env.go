package command

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

//go:embed init/environment.yaml
var sampleEnvironment []byte

func (p *program) envCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "env",
		GroupID: groupTasks,
		Short:   "Checkpoints of an environment, and rolling back to them",
		Long: `An environment is a set of parts that belong together (folders, git repositories, databases). A
checkpoint keeps all of them at one moment, while the unit that uses them is stopped. A rollback
puts all of them back, and takes a checkpoint of what was there before, so that it can be reversed.

` + exitStatuses,
		Example: `  starter env apply environment.yaml
  starter env checkpoint shop --notes "before the upgrade"
  starter env rollback shop cp-k3x9q2ab`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		p.envInitCommand(), p.envApplyCommand(), p.envListCommand(), p.envShowCommand(), p.envCheckpointCommand(),
		p.envRollbackCommand(), p.envDiffCommand(), p.envPinCommand("pin", true), p.envPinCommand("unpin", false),
		p.envDeleteCommand(),
		p.envPruneCommand("prune", environment.UpdatePrune,
			"Delete the checkpoints that the retention no longer keeps"),
		p.envPruneCommand("remove", environment.UpdateRemove,
			"Delete all checkpoints, and forget the environment; its parts stay as they are"),
		p.envSchemaCommand(),
	)
	return c
}

func (p *program) envInitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write environment.yaml", Args: noArguments,
		Long:    "Init writes environment.yaml, a file to begin with, into the current folder.\n\n" + exitStatuses,
		Example: "  starter env init",
		RunE: func(*cobra.Command, []string) error {
			const name = "environment.yaml"
			f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return usage.Errorf("%s is there already; move it away, or edit it", name)
			}
			if err != nil {
				return err
			}
			_, err = f.Write(sampleEnvironment)
			if err = errors.Join(err, f.Close()); err == nil {
				p.printf("wrote %s; name the parts in it, then: starter env apply %s\n", name, name)
			}
			return err
		},
	}
}

func (p *program) envSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of environment.yaml", Args: noArguments,
		Long:    "Schema prints the JSON Schema of environment.yaml, for editors.\n\n" + exitStatuses,
		Example: "  starter env schema > environment.schema.json",
		RunE: func(*cobra.Command, []string) error {
			s, err := environment.Schema()
			if err != nil {
				return err
			}
			return p.printJSON(s)
		},
	}
}

func (p *program) envApplyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "apply FILE", Short: "Make an environment, or change one", Args: exactArguments("FILE"),
		Long: `Apply makes the environment that a file describes, or changes the one of that name, once a worker
has found that it can take a checkpoint of each part. It takes none, and touches nothing.

` + exitStatuses,
		Example: "  starter env apply environment.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := p.readSource(args[0])
			if err != nil {
				return err
			}
			d, err := environment.Parse(args[0], src)
			if err != nil {
				return usage.Wrap(err)
			}
			file, err := p.checkTaskFile(args[0], d.CheckpointTask(d.On, "cp-check", ""), nil, "")
			if problems, is := errors.AsType[task.Problems](err); is {
				err = usage.Wrap(problems.WithoutPositions()) // those of the task, which nobody has written
			}
			if err != nil {
				return err
			}
			c, err := p.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			queue := p.sharedQueue()
			if !c.HasWorker(cmd.Context(), queue) {
				return fmt.Errorf("no worker serves queue %s; start one: starter dev, or the worker", queue)
			}
			seen, err := c.Validate(cmd.Context(), file, queue, p.streams.Err)
			if err != nil {
				return err
			}
			if len(seen.Refusals) > 0 {
				return usage.Errorf("%s: environment %s cannot be checkpointed: %s", args[0], d.Name,
					strings.Join(explainRefusals(seen.Refusals), "\n"))
			}
			for _, unseen := range seen.Unseen {
				p.printf("not checked: %s\n", unseen)
			}
			if err := c.ApplyEnvironment(cmd.Context(), d, queue); err != nil {
				return err
			}
			p.printf("environment %s is there; take a checkpoint: starter env checkpoint %s\n", d.Name, d.Name)
			return nil
		},
	}
}

// explainRefusals says what is wrong with each part: a checkpoint may have several steps about it.
func explainRefusals(refusals []activities.Refusal) (lines []string) {
	for _, r := range refusals {
		lines = append(lines, environment.FieldOf(r.Step)+": "+r.Message)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (p *program) envListCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use: "list", Short: "List environments", Args: noArguments,
		Long:    "List lists the environments of the namespace.\n\n" + exitStatuses,
		Example: "  starter env list",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
			names, err := c.Environments(ctx)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(append([]string{}, names...))
			}
			if len(names) == 0 {
				p.printf("no environments in namespace %s of %s\n", c.Namespace, c.Address)
			}
			for _, name := range names {
				p.printf("%s\n", name)
			}
			return nil
		}),
	}
	output.addTo(c)
	return c
}

func (p *program) envShowCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use: "show NAME [CHECKPOINT]", Short: "Show an environment and its checkpoints, the newest first",
		Args: cobra.RangeArgs(1, 2),
		Long: `Show shows the parts of an environment and its checkpoints, the newest first, with what they take and
which are kept. With a CHECKPOINT, it shows only that one.

` + exitStatuses,
		Example: "  starter env show shop -o json",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			v, err := c.Environment(ctx, args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				var wrote environment.Tasks
				if err := c.AskEnvironment(ctx, args[0], environment.UpdateTasks, &wrote); err != nil {
					return err
				}
				if output == "json" {
					return p.printJSON(struct {
						environment.View
						environment.Tasks
					}{v, wrote})
				}
				render.Environment(p.streams.Out, v)
				render.TasksOf(p.streams.Out, v, wrote)
				return nil
			}
			for _, one := range v.Checkpoints {
				if one.ID == args[1] {
					return p.printJSON(one)
				}
			}
			return usage.Errorf("environment %s has no checkpoint %q; `starter env show %s` lists them", args[0], args[1],
				args[0])
		}),
	}
	output.addTo(c)
	return c
}

func (p *program) envCheckpointCommand() *cobra.Command {
	r := environment.CheckpointRequest{}
	trigger := string(environment.Manual)
	output := outputFlag("text")
	c := &cobra.Command{
		Use: "checkpoint NAME", Short: "Take a checkpoint of an environment", Args: exactArguments("NAME"),
		Long: `Checkpoint stops the unit, captures all parts beside each other, and starts the unit again: all or
nothing. It then lets go of the checkpoints that the retention no longer keeps.

` + exitStatuses,
		Example: `  starter env checkpoint shop --notes "before the upgrade" --pin`,
		PreRunE: func(*cobra.Command, []string) error {
			if slices.Contains(environment.Triggers, trigger) {
				return nil
			}
			return usage.Errorf("--trigger %q: give one of %s", trigger, strings.Join(environment.Triggers, ", "))
		},
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			r.ID, r.Trigger, r.Who = tasks.NewCheckpointID(), environment.Trigger(trigger), currentUser()
			var taken environment.Checkpoint
			err := p.operate(ctx, c, args[0], environment.CheckpointTaskID(args[0], r.ID), output,
				environment.UpdateCheckpoint, r, &taken)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(taken)
			}
			render.Checkpoints(p.streams.Out, []environment.Checkpoint{taken})
			p.printf("go back to it: starter env rollback %s %s\n", args[0], taken.ID)
			return nil
		}),
	}
	c.Flags().StringVar(&r.Notes, "notes", "", "a `note` for people")
	c.Flags().BoolVar(&r.Pinned, "pin", false, "keep it until it is unpinned")
	c.Flags().StringVar(&trigger, "trigger", trigger, "why it is taken: deploy, manual or agent")
	output.addTo(c)
	return c
}

func (p *program) envRollbackCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use: "rollback NAME CHECKPOINT", Short: "Put an environment back to a checkpoint", Args: exactArguments("NAME",
			"CHECKPOINT"),
		Long: `Rollback verifies the checkpoint, stops the unit, takes a safety checkpoint of how everything is,
puts all parts back exactly, starts the unit and asks whether it works. If any of that fails,
everything is as before. A unit that was not healthy before may stay so: that is said, and rolls
nothing back. Roll back to the safety checkpoint to go forward again.

What lies between the parts does not come back: calls of APIs, messages that were sent.

` + exitStatuses,
		Example: "  starter env rollback shop cp-k3x9q2ab",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			r := environment.RollbackRequest{To: args[1], Safety: tasks.NewCheckpointID(), Who: currentUser()}
			var done environment.RolledBack
			err := p.operate(ctx, c, args[0], environment.RollbackTaskID(args[0], r.Safety), output,
				environment.UpdateRollback, r, &done)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(done)
			}
			render.RolledBack(p.streams.Out, done)
			return nil
		}),
	}
	output.addTo(c)
	return c
}

func (p *program) envDiffCommand() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use: "diff NAME CHECKPOINT [CHECKPOINT]", Short: "Show what differs between two checkpoints, or one and now",
		Args: cobra.RangeArgs(2, 3),
		Long: `Diff shows what differs in each part between a CHECKPOINT and another one, or what is there now: paths
of folders, repositories, volumes and containers; objects, and rows by table, of databases. It stops
nothing and changes nothing.

` + exitStatuses,
		Example: "  starter env diff shop cp-k3x9q2ab\n  starter env diff shop cp-k3x9q2ab cp-m5q7w1ze",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			r := environment.CompareRequest{ID: tasks.NewCheckpointID(), From: args[1], Who: currentUser()}
			if len(args) > 2 {
				r.To = args[2]
			}
			var found environment.Comparison
			if err := c.AskEnvironment(ctx, args[0], environment.UpdateCompare, &found, r); err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(found)
			}
			render.Comparison(p.streams.Out, found)
			return nil
		}),
	}
	output.addTo(c)
	return c
}

// operate sends an update to an environment and follows the task that it runs.
func (p *program) operate(ctx context.Context, c *tasks.Client, name, task string, output outputFlag, update string,
	argument, result any) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	answered := make(chan error, 1)
	go func() {
		answered <- c.AskEnvironment(ctx, name, update, result, argument)
		stop()
	}()
	if t, begun := c.AwaitTask(waiting, task); begun && output != "json" {
		if err := p.followTask(ctx, c, t, followFlags{wait: true, output: output}); ctx.Err() != nil {
			return err // any other is that of the task, which the update tells
		}
	}
	return <-answered
}

func (p *program) envPinCommand(name string, pinned bool) *cobra.Command {
	what := map[bool]string{true: "Keep a checkpoint until it is unpinned",
		false: "Let the retention decide about a checkpoint again"}[pinned]
	long := what + "."
	if !pinned {
		long += " Steps whose undo needs it can then no longer be\nundone."
	}
	return &cobra.Command{
		Use: name + " NAME CHECKPOINT", Short: what, Args: exactArguments("NAME", "CHECKPOINT"),
		Long: long + "\n\n" + exitStatuses, Example: "  starter env " + name + " shop cp-k3x9q2ab",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			var now environment.Checkpoint
			err := c.AskEnvironment(ctx, args[0], environment.UpdatePin, &now, environment.PinRequest{ID: args[1],
				Pinned: pinned, GiveUp: !pinned})
			if err == nil {
				p.printf("checkpoint %s is %sned\n", now.ID, name)
			}
			return err
		}),
	}
}

func (p *program) envDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME CHECKPOINT", Short: "Delete a checkpoint that is not pinned", Args: exactArguments("NAME",
			"CHECKPOINT"),
		Long:    "Delete deletes a checkpoint and frees what only it needed, unless it is pinned.\n\n" + exitStatuses,
		Example: "  starter env delete shop cp-k3x9q2ab",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			err := c.AskEnvironment(ctx, args[0], environment.UpdateDelete, nil, args[1])
			if err == nil {
				p.printf("checkpoint %s is deleted\n", args[1])
			}
			return err
		}),
	}
}

func (p *program) envPruneCommand(name, update, what string) *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use: name + " NAME", Short: what, Args: exactArguments("NAME"),
		Long: what + ".\n\n" + exitStatuses, Example: "  starter env " + name + " shop",
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
			var pruned environment.Pruned
			if err := c.AskEnvironment(ctx, args[0], update, &pruned); err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(pruned)
			}
			p.printf("deleted: %d, kept: %d\n", len(pruned.Deleted), pruned.Kept)
			return nil
		}),
	}
	output.addTo(c)
	return c
}
