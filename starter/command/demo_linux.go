package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/examples/stage"
	"github.com/seed-62bf7108/unwind/starter/local"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// demo is an example that can be played: stay says that somebody may want to look at it afterwards.
type demo struct {
	name string
	play func(ctx context.Context, stay bool) error
}

// demos lists the examples; the first is the main one.
func (p *program) demos() (all []demo) {
	for _, e := range examples.All() {
		all = append(all, demo{e.Name, func(ctx context.Context, stay bool) error { return p.playExample(ctx, e, stay) }})
	}
	return append(all, demo{"environment", p.playEnvironment})
}

func (p *program) demoCommand() *cobra.Command {
	demos := p.demos()
	var names []string
	for _, d := range demos {
		names = append(names, d.name)
	}
	var f struct {
		example string
		exit    bool
	}
	c := &cobra.Command{
		Use:     "demo",
		GroupID: groupServe,
		Short:   "Run an example task on real input, nothing to prepare",
		Long: `Demo sets up a site, a container, a database, a bit of infrastructure and an emulator of Stripe in a
temporary folder, starts a Temporal server with its UI and a worker that may touch nothing else, and
runs the task of an agent on them. It shows each step as it happens, the report, and then an
independent check of the world, by code that shares nothing with Unwind.

At a gate it shows the change and the three ways to approve it. On a terminal it waits for you, for
a minute; after that, or without a terminal, it sends the signal itself.

It stays up until Ctrl-C, so that you can look at the run in the Temporal UI; the server's database
stays in the state folder. With --exit it never waits and exits at the end: with status 0 only if
the world is as it was before (after publish-ok: as the task should have left it). Without a Docker
engine or Terraform, it leaves those steps out and says so. If TEMPORAL_ADDRESS or a profile of the
temporal CLI names a server, it runs there.

The example environment is another story: a shop of code in git, rows in PostgreSQL and a folder of
uploads, which an agent breaks by an upgrade. It is rolled back, rolled forward into the failure,
and fixed, while its URL is asked all along. It needs git and PostgreSQL's programs.

The examples: ` + strings.Join(names, ", ") + ".\n\n" + exitStatuses,
		Example: `  starter demo
  starter demo --example publish-rejected
  starter demo --example environment
  starter demo --exit >demo.log && echo found as before`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := slices.Index(names, f.example)
			if i < 0 {
				return usage.Errorf("--example: there is no example %q; there are %s", f.example, strings.Join(names, ", "))
			}
			// Several goroutines write at once.
			p.streams.Out, p.streams.Err = lockWriter(p.streams.Out), lockWriter(p.streams.Err)
			// A terminal or a pipe that is closed must not end the demo before it has cleaned up.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			return demos[i].play(ctx, !f.exit)
		},
	}
	c.Flags().StringVar(&f.example, "example", names[0], "`name` of the example")
	c.Flags().BoolVar(&f.exit, "exit", false, "never wait for input, and leave at the end")
	_ = c.RegisterFlagCompletionFunc("example", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// cleanupLimit is how long an interrupted demo may take to clean up.
const cleanupLimit = time.Minute

// playExample sets a stage, runs one example on it, and clears the stage.
func (p *program) playExample(ctx context.Context, example examples.Example, stay bool) (err error) {
	s, err := stage.Set(ctx, stage.Options{Log: p.streams.Err})
	if err != nil {
		return err
	}
	defer func() {
		clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		err = errors.Join(err, s.Close(clearing))
	}()
	l, err := p.startDemo(ctx, s.Config())
	if err != nil {
		return err
	}
	defer l.Stop()
	before, err := found.Look(ctx, s.Place())
	if err != nil {
		return err
	}
	example, file, err := p.fitExample(example, s)
	if err != nil {
		return err
	}
	t, err := l.Start(ctx, file, tasks.StartOptions{Queue: l.Worker.Config.Queue})
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			p.abandonTask(context.WithoutCancel(ctx), l.Client, t)
		}
	}()
	link := l.RunLink(t.ID, t.RunID)
	p.printf("task %s, %s\nits input is in %s\n", t.ID, example.Name, s.Folder)
	if link != "" {
		p.printf("see  %s\n", link)
	}
	p.printf("\n")
	e, err := p.directTask(ctx, l.Client, t, example, stay)
	if err != nil {
		return err
	}
	wrong, err := p.judgeWorld(ctx, s, example, before, e)
	if err != nil {
		return err
	}
	if link != "" {
		p.printf("\nthe run in the Temporal UI: %s\n", link)
	}
	if err := p.stayUp(ctx, l, stay); err != nil {
		return err
	}
	return wrong
}

// stayUp waits until somebody has seen enough, if anybody may want to look.
func (p *program) stayUp(ctx context.Context, l *local.Stack, stay bool) error {
	if !stay {
		return nil
	}
	p.printf("Ctrl-C ends the demo and removes everything it made\n")
	return l.Wait(ctx)
}

// startDemo starts a worker for a stage, and a server on the first database that no other demo
// uses.
func (p *program) startDemo(ctx context.Context, config host.Config) (*local.Stack, error) {
	state, err := local.StateFolder()
	if err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		l, err := local.Start(ctx, local.Options{
			Config: config, Folder: local.DemoFolder(state, n), Worlds: p.options.Worlds, UI: p.ui, Log: p.streams.Err,
		})
		var taken local.FolderTaken
		if errors.As(err, &taken) && n < local.MaxDemos {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.Temporal != nil {
			dev, running := local.FindDev()
			l.NeedsAddress = !running || dev.Address != l.Address
		}
		return l, nil
	}
}

// fitExample reads the example without the steps that this machine cannot run, and prints which
// they are.
func (p *program) fitExample(example examples.Example, s *stage.Stage) (examples.Example, tasks.File, error) {
	fitting, gone, err := example.Without(s.Without()...)
	if err != nil {
		return example, tasks.File{}, err
	}
	for _, world := range s.Without() {
		p.printf("left out: the steps of world %s: %s\n", world, terminal.OneLine(s.Missing[world]))
	}
	if len(gone) > 0 {
		p.printf("left out: %s\n", strings.Join(gone, ", "))
	}
	doc, err := p.checkTaskFile(example.Name+".yaml", fitting.Source, fitting.Values(s.Vars()), "")
	return fitting, doc, err
}

// judgeWorld prints the report and what an independent check finds. wrong says that the world, or
// the way the task ended, is not what the example should lead to.
func (p *program) judgeWorld(ctx context.Context, s *stage.Stage, example examples.Example, before found.Observed,
	e tasks.Ending) (wrong, err error) {
	if e.Report == nil {
		return nil, errors.New(e.Failure)
	}
	p.printf("\n")
	render.Report(p.streams.Out, *e.Report)
	now, err := found.Look(ctx, s.Place())
	if err != nil {
		return nil, err
	}
	var want map[string][]found.Want
	title, status := "independent check, against the world before the task:", compensations.Unwound
	if example.Ends == examples.Commits {
		want, title, status = s.Committed(example.Name), "independent check, against what the task should leave:",
			compensations.Committed
	}
	findings := before.Compare(now, want, reportedLosses(*e.Report))
	p.printf("\n%s\n", title)
	ok := writeFindings(p.streams.Out, findings)
	switch {
	case !ok && example.Ends == examples.Commits:
		return errors.New("the world is not as the task should have left it"), nil
	case !ok:
		return errors.New("the world is not as it was before"), nil
	case e.Report.Status != status:
		return fmt.Errorf("the task ended as %s, not as %s", e.Report.Status, status), nil
	}
	return nil, nil
}

func reportedLosses(r compensations.Report) []string {
	var all []string
	for _, s := range r.Steps {
		if s.Outcome == activities.Compensated || s.Outcome == activities.Residue {
			all = append(all, s.Losses...)
		}
	}
	return all
}

// writeFindings prints a line for each world, and says whether all of them are as they should be.
func writeFindings(w io.Writer, findings []found.Finding) bool {
	ok := true
	t := terminal.Table{Indent: " "}
	for _, f := range findings {
		sign := "✓"
		if !f.OK {
			sign, ok = "!", false
		}
		t.Row(sign, f.World, f.Looked)
		if len(f.Lost) > 0 {
			t.Row("", "", "except for the losses in the report: "+strings.Join(f.Lost, "; "))
		}
		for _, wrong := range f.Wrong {
			t.Row("", "", "differs: "+terminal.OneLine(wrong))
		}
	}
	t.Write(w)
	return ok
}
