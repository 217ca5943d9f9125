package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Options configure a starter. The zero value is the one that Unwind ships.
type Options struct {
	// Worlds are your own, in addition to the built-in ones.
	Worlds []activities.World

	// queue is that of a test which runs beside others, in the place of UNWIND_QUEUE.
	queue string
	// silence is the SilenceLimit of a test's client.
	silence time.Duration
}

// Main runs the command line of this process and returns its exit status.
func Main(o Options) int {
	if thisMachine != nil {
		thisMachine.hooks()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, o, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// Tree returns the commands of a starter for an operating system, as Go names it, for documentation
// and completion.
func Tree(goos string) *cobra.Command {
	p := &program{}
	if goos == "linux" {
		p.worker = thisMachine
	}
	root := p.rootCommand()
	root.InitDefaultCompletionCmd()
	return root
}

// Streams are a command's standard streams. Only an *os.File can be a terminal.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// The exit statuses.
const (
	statusOK          = 0
	statusFailed      = 1
	statusUsage       = 2
	statusNeedsPerson = 3
	statusTimedOut    = 4
	statusInterrupted = 130
)

const exitStatuses = `Exit status:
  0    done
  1    the task failed, or what was asked could not be done
  2    usage or bad input: nothing was started, sent or touched
  3    it waits for a person, and nobody is at the terminal
  4    it was not over within --timeout
  130  interrupted; a task that was started goes on`

// Run runs one command line and returns its exit status. The end of ctx is an interrupt.
func Run(ctx context.Context, o Options, args []string, s Streams) int {
	return (&program{options: o, streams: s, worker: thisMachine}).run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) int {
	s := p.streams
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	var wrong usage.Error
	var as exit
	var problems task.Problems
	switch {
	case err == nil:
		return statusOK
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(s.Err, "starter: interrupted")
		return statusInterrupted
	case errors.As(err, &problems):
		fmt.Fprintln(s.Err, problems) // each line begins with FILE:LINE:COLUMN, for editors
		return statusUsage
	case errors.As(err, &as):
		fmt.Fprintln(s.Err, "starter:", err)
		return as.status
	case errors.As(err, &wrong) || !p.began:
		fmt.Fprintln(s.Err, "starter:", err)
		return statusUsage
	}
	fmt.Fprintln(s.Err, "starter:", err)
	return statusFailed
}

// exit is an error with an exit status of its own.
type exit struct {
	status int
	error
}

func (e exit) Unwrap() error { return e.error }

// program is one execution of the command line.
type program struct {
	options Options
	streams Streams
	worker  workerSide
	// began is set once flags and arguments are valid.
	began bool
	ui    string // --ui
}

func (p *program) printf(format string, args ...any) { fmt.Fprintf(p.streams.Out, format, args...) }

const (
	groupTasks  = "tasks"
	groupDecide = "decide"
	groupAfter  = "after"
	groupLook   = "look"
	groupServe  = "serve"
)

func (p *program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "starter",
		Short: "Run the tasks of AI agents so that everything they did can be undone",
		Long: `starter runs tasks of AI agents on Temporal: each step's undo is registered before the step runs,
risky steps wait for a person, and whatever ends a task early unwinds it, last in first out.

The Temporal server is the one that TEMPORAL_ADDRESS or a profile of the temporal CLI names, else
that of a running "starter dev", else localhost:7233.

` + exitStatuses,
		Example: `  starter run release.yaml --watch           # run a task and follow it
  starter approve release-k3x9q2 publish     # decide about a step at its gate
  starter rollback release-k3x9q2 --watch    # undo a committed task`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.began = true
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage.Errorf("%w; see %s --help", explainFlag(err), c.CommandPath())
	})
	root.PersistentFlags().StringVar(&p.ui, "ui", os.Getenv("TEMPORAL_UI"),
		"address of the Temporal `UI`, for links (default TEMPORAL_UI, else that of a running starter dev)")
	root.AddGroup(
		&cobra.Group{ID: groupTasks, Title: "Tasks:"},
		&cobra.Group{ID: groupDecide, Title: "Decide:"},
		&cobra.Group{ID: groupAfter, Title: "After the end:"},
		&cobra.Group{ID: groupLook, Title: "Task files:"},
		&cobra.Group{ID: groupServe, Title: "Serve:"},
	)
	root.AddCommand(
		p.runCommand(), p.sessionCommand(), p.watchCommand(), p.showCommand(), p.listCommand(),
		p.approveCommand(), p.rejectCommand(), p.resolveCommand(), p.cancelCommand(),
		p.allowCommand(), p.allowancesCommand(), p.disallowCommand(),
		p.rollbackCommand(), p.redoCommand(), p.recoverCommand(), p.orphansCommand(),
		p.validateCommand(), p.planCommand(), p.catalogCommand(), p.schemaCommand(), p.policyCommand(),
		p.mcpCommand(), p.serveCommand(), p.envCommand(),
	)
	if p.worker == nil {
		root.AddCommand(refusedCommands()...)
		return root
	}
	root.AddCommand(p.worker.commands(p)...)
	root.Example = workerExamples + root.Example
	return root
}

// explainFlag says what to give instead of a flag's value that is not of its type.
func explainFlag(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	way := invalid.Unwrap()
	switch invalid.GetFlag().Value.Type() {
	case "int":
		way = errors.New("give a whole number")
	case "bool":
		way = errors.New("give true or false")
	}
	return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), way)
}

// withConnection connects to the server for the duration of a command.
func (p *program) withConnection(do func(ctx context.Context, c *tasks.Client,
	args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := p.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		return do(cmd.Context(), c, args)
	}
}

// withTask connects to the server and finds the task that the first argument names.
func (p *program) withTask(do func(ctx context.Context, c *tasks.Client, t tasks.Run) error) func(*cobra.Command,
	[]string) error {
	return p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) error {
		t, err := c.Describe(ctx, args[0])
		if err != nil {
			return err
		}
		return do(ctx, c, t)
	})
}

// exactArguments requires one argument for each name, none of them empty.
func exactArguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usage.Errorf("%s takes %s, but got %s; see %s --help", c.CommandPath(), strings.Join(names, " and "),
				activities.CountOf(len(args), "argument"), c.CommandPath())
		}
		for i, a := range args {
			switch {
			case strings.TrimSpace(a) == "":
				return usage.Errorf("%s is empty; see %s --help", names[i], c.CommandPath())
			case names[i] == "ID" && (len(a) > longestID || !utf8.ValidString(a)):
				return usage.Errorf("ID %q: no task or session can have this id; `starter list` shows the tasks",
					terminal.Clip(terminal.OneLine(a), 40))
			}
		}
		return nil
	}
}

// longestID is the longest id that a server looks up, unless it is configured otherwise. It refuses
// others in words of its own.
const longestID = 1000

// noArguments refuses any argument.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage.Errorf("%s takes no argument, but got %q; see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}

// durationFlag is a time above zero.
type durationFlag time.Duration

func (f *durationFlag) String() string {
	if *f == 0 {
		return ""
	}
	return time.Duration(*f).String()
}

func (f *durationFlag) Type() string { return "duration" }

func (f *durationFlag) Set(v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return errors.New("give a time above zero, such as 90s, 30m or 24h")
	}
	*f = durationFlag(d)
	return nil
}

// outputFlag is -o: text or json.
type outputFlag string

func (f *outputFlag) addTo(c *cobra.Command) {
	c.Flags().VarP(f, "output", "o", "`text` or json")
	_ = c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *outputFlag) String() string { return string(*f) }

func (f *outputFlag) Type() string { return "format" }

func (f *outputFlag) Set(v string) error {
	if v != "text" && v != "json" {
		return errors.New("give text or json")
	}
	*f = outputFlag(v)
	return nil
}
