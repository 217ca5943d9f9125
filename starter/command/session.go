package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

func (p *program) sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "session COMMAND",
		GroupID: groupTasks,
		Short:   "Work step by step: open a session, send steps, roll back, redo, finish",
		Long: `A session is a task that takes its steps while it runs: a task file with session:, whose list of
steps may be empty. A failed step is undone alone, and the session goes on. Each command prints its
answer as JSON.

Give --request to make a command safe to repeat: a request with the id of an earlier one is that
request, and carried out once.

` + exitStatuses,
		Example: `  starter session open session.yaml --id build-7
  echo '{uses: file.write, with: {path: /srv/a, content: x}}' | starter session step build-7 -
  starter session savepoint build-7 before-tests
  starter session rollback build-7 --to before-tests
  starter session redo build-7
  starter session note build-7 "The parser was the hard part."
  starter session finish build-7`,
	}
	c.AddCommand(
		p.openSessionCommand(), p.addStepsCommand(), p.savepointCommand(), p.noteCommand(), p.rollbackSessionCommand(),
		p.redoSessionCommand(), p.keepContextCommand(), p.sessionContextCommand(), p.awaitSessionCommand(),
		p.finishSessionCommand(), p.abortSessionCommand(),
	)
	return c
}

func addRequestTo(c *cobra.Command, request *string) {
	c.Flags().StringVar(request, "request", "", "`id` of the request (default: a new one)")
}

func (p *program) openSessionCommand() *cobra.Command {
	var files fileFlags
	var id, agent, queue, request string
	c := &cobra.Command{
		Use:   "open FILE",
		Short: "Open a session",
		Args:  exactArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := p.readTaskFile(args[0], files)
			if err != nil {
				return err
			}
			if id != "" {
				if err := tasks.CheckNewID(id); err != nil {
					return err
				}
			}
			if file.Compiled.Session == nil {
				return usage.Errorf("%s is no session: add session: {}, or start it with `starter run`", args[0])
			}
			return p.withConnection(func(ctx context.Context, c *tasks.Client, _ []string) error {
				s, answer, err := session.Open(ctx, c, session.Options{
					ID: id, Agent: cmp.Or(agent, file.Compiled.Agent), Name: file.Compiled.Name, Queue: cmp.Or(queue, p.sharedQueue()),
					Request: request,
				}, file.Document)
				return p.printAnswer(struct {
					Session string `json:"session"`
					protocol.Answer
				}{s.ID(), answer}, answer, err)
			})(cmd, args)
		},
	}
	files.addTo(c)
	c.Flags().StringVar(&id, "id", "", "`id` of the session (default: one that nobody can guess)")
	c.Flags().StringVar(&agent, "agent", "", "`name` of who works in it (default: that of the file)")
	c.Flags().StringVar(&queue, "queue", "", "task `queue` of the workers")
	addRequestTo(c, &request)
	return c
}

func (p *program) addStepsCommand() *cobra.Command {
	var request string
	c := &cobra.Command{
		Use:   "step ID FILE",
		Short: "Run a step, or a list of steps, as in a task file (- is the standard input)",
		Args:  exactArguments("ID", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := p.readSource(args[1])
			if err != nil {
				return err
			}
			steps, err := readSteps(src)
			if err != nil {
				return usage.Errorf("%s: %w", args[1], err)
			}
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				return s.Step(ctx, request, steps...)
			})(cmd, args)
		},
	}
	addRequestTo(c, &request)
	return c
}

func (p *program) savepointCommand() *cobra.Command {
	var request, file string
	c := &cobra.Command{
		Use:   "savepoint ID NAME",
		Short: "Give a name to the place after everything that is done",
		Args:  exactArguments("ID", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var content []byte
			if file != "" {
				var err error
				if content, err = p.readSource(file); err != nil {
					return err
				}
			}
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				if file != "" {
					return s.SavepointWith(ctx, request, args[1], content)
				}
				return s.Savepoint(ctx, request, args[1])
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&file, "context", "",
		"`file` with what the agent must know to go on from here (- is the standard input)")
	addRequestTo(c, &request)
	return c
}

func (p *program) noteCommand() *cobra.Command {
	var request string
	c := &cobra.Command{
		Use:   "note ID TEXT",
		Short: "Note something for the people who look at the session",
		Args:  exactArguments("ID", "TEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				return s.Note(ctx, request, args[1])
			})(cmd, args)
		},
	}
	addRequestTo(c, &request)
	return c
}

func (p *program) rollbackSessionCommand() *cobra.Command {
	var request string
	var r protocol.SessionRollback
	var branch protocol.Branch
	var score float64
	c := &cobra.Command{
		Use:   "rollback ID",
		Short: "Undo everything since a savepoint, or a step and what builds on it",
		Args:  exactArguments("ID"),
		PreRunE: func(*cobra.Command, []string) error {
			if (r.To == "") == (r.Step == "") {
				return usage.Errorf("give --to or --step, and not both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch isScored := cmd.Flags().Changed("score"); {
			case branch.Name == "" && (isScored || branch.Note != ""):
				return usage.Errorf("--score and --note are about a branch: give --branch as well")
			case branch.Name != "":
				if r.Branch = &branch; isScored {
					branch.Score = &score
				}
			}
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				return s.Rollback(ctx, request, r)
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&branch.Name, "branch", "", "keep what is undone as a branch of this `name`, for redo --branch")
	c.Flags().Float64Var(&score, "score", 0, "how good the branch is, to compare it")
	c.Flags().StringVar(&branch.Note, "note", "", "what there is to know about the branch")
	c.Flags().StringVar(&r.To, "to", "", "`savepoint` to go back to")
	c.Flags().StringVar(&r.Step, "step", "", "`step` to undo")
	c.Flags().StringVar(&r.Why, "why", "", "`reason`, kept in the report")
	addRequestTo(c, &request)
	return c
}

func (p *program) redoSessionCommand() *cobra.Command {
	var request string
	var r protocol.SessionRedo
	c := &cobra.Command{
		Use:   "redo ID",
		Short: "Run again what a rollback has undone: by default the last one that was not redone",
		Args:  exactArguments("ID"),
		PreRunE: func(*cobra.Command, []string) error {
			if r.To != "" && r.Step != "" || r.Branch != "" && r.To+r.Step != "" {
				return usage.Errorf("give one of --branch, --to and --step")
			}
			return nil
		},
		RunE: p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
			return s.Redo(ctx, request, r)
		}),
	}
	c.Flags().StringVar(&r.Branch, "branch", "", "`branch` that the rollback was kept as")
	c.Flags().StringVar(&r.To, "to", "", "`savepoint` of the rollback")
	c.Flags().StringVar(&r.Step, "step", "", "`step` of the rollback")
	c.Flags().StringVar(&r.Why, "why", "", "`reason`, kept in the report")
	addRequestTo(c, &request)
	return c
}

func (p *program) awaitSessionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "await ID REQUEST",
		Short: "Wait until an earlier request is over",
		Args:  exactArguments("ID", "REQUEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				return s.Await(ctx, args[1])
			})(cmd, args)
		},
	}
}

func (p *program) finishSessionCommand() *cobra.Command {
	var request string
	c := &cobra.Command{
		Use:   "finish ID",
		Short: "Commit what the session has done",
		Args:  exactArguments("ID"),
		RunE: p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer,
			error) {
			return s.Finish(ctx, request)
		}),
	}
	addRequestTo(c, &request)
	return c
}

func (p *program) abortSessionCommand() *cobra.Command {
	var request string
	var r protocol.AbortRequest
	c := &cobra.Command{
		Use:   "abort ID",
		Short: "Undo everything that the session has done",
		Args:  exactArguments("ID"),
		RunE: p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
			return s.Abort(ctx, request, r)
		}),
	}
	c.Flags().StringVar(&r.Why, "why", "", "`reason`, kept in the report")
	addRequestTo(c, &request)
	return c
}

// askSession sends a request to the session that the first argument names, and prints the answer.
func (p *program) askSession(ask func(context.Context, session.Session) (protocol.Answer, error)) func(*cobra.Command,
	[]string) error {
	return p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
		answer, err := ask(ctx, session.Attach(c, args[0]))
		return p.printAnswer(answer, answer, err)
	})
}

// printAnswer prints an answer as JSON. Its exit status says whether every step was done.
func (p *program) printAnswer(printed any, a protocol.Answer, err error) error {
	var refusal session.Refusal
	switch {
	case errors.As(err, &refusal):
		return usage.Errorf("%s: %w", refusal.Type, refusal)
	case err != nil:
		return err
	}
	raw, err := json.MarshalIndent(printed, "", "  ")
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	p.printf("%s\n", raw)
	if a.Pending {
		return exit{statusNeedsPerson, errors.New("it waits for a person: see `starter show`, then `starter session await`")}
	}
	for _, s := range a.Steps {
		if s.State != protocol.Done {
			return exit{statusFailed, fmt.Errorf("step %s is %s", s.ID, s.State)}
		}
	}
	return nil
}

// readSteps reads a step or a list of steps, in YAML or JSON.
func readSteps(src []byte) (steps []json.RawMessage, err error) {
	var read any
	if err := yaml.Unmarshal(src, &read); err != nil {
		return nil, fmt.Errorf("read steps: %w", err)
	}
	list, isList := read.([]any)
	if !isList {
		list = []any{read}
	}
	for i, step := range list {
		if _, isMap := step.(map[string]any); !isMap {
			return nil, fmt.Errorf("step %d must be a map with uses and with, as in a task file", i+1)
		}
		raw, err := json.Marshal(step)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		steps = append(steps, raw)
	}
	return steps, nil
}
