package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/examples/stage"
)

func (p *program) demo() *cobra.Command {
	var names []string
	for _, e := range examples.All() {
		names = append(names, e.Name)
	}
	var f struct {
		example string
		exit    bool
	}
	c := &cobra.Command{
		Use:     "demo",
		GroupID: groupServe,
		Short:   "Play an example task on real input, nothing to prepare",
		Long: `Demo sets up a site, a container, a bit of infrastructure and an emulator of Stripe in a temporary folder, starts a
Temporal server with its UI and a worker that may touch nothing else, and runs the task of an agent on them. It shows
each step as it happens, the report, and then an independent check of the world, by code that shares nothing with Unwind's.

At a gate it shows the change and the three ways to approve it. On a terminal it waits for you, for a minute; after that,
or without a terminal, it sends the signal itself.

It stays up until Ctrl-C, so that you can look at the run in the Temporal UI; the server's database stays in the state
folder. With --exit it never waits and exits at the end: with status 0 only if the world is as it was before (after
publish-ok: as the task should have left it). Without a Docker engine or Terraform, it leaves those steps out
and says so. Where TEMPORAL_ADDRESS or a profile of the temporal CLI names a server, it plays there.

The examples: ` + strings.Join(names, ", ") + ".\n\n" + exitStatuses,
		Example: `  starter demo
  starter demo --example publish-rejected
  starter demo --exit >demo.log && echo found as before`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			example, err := examples.Named(f.example)
			if err != nil {
				return usagef("--example: %w", err)
			}
			// Several things of the demo write at once.
			p.streams.Out, p.streams.Err = oneAtATime(p.streams.Out), oneAtATime(p.streams.Err)
			// Nor may a terminal that is closed, or a pipe that nobody reads, end it before it has cleared away.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			return p.play(ctx, example, !f.exit)
		},
	}
	c.Flags().StringVar(&f.example, "example", names[0], "`name` of the example")
	c.Flags().BoolVar(&f.exit, "exit", false, "never wait for input, and leave at the end")
	_ = c.RegisterFlagCompletionFunc("example", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// clearLimit is how long an interrupted demo may take to clear away.
const clearLimit = time.Minute

// play plays one example from an empty stage to an empty stage.
func (p *program) play(ctx context.Context, example examples.Example, stay bool) (err error) {
	s, err := stage.Set(ctx, stage.Options{Log: p.streams.Err})
	if err != nil {
		return err
	}
	defer func() {
		clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearLimit)
		defer cancel()
		err = errors.Join(err, s.Close(clearing))
	}()
	l, err := p.startDemo(ctx, s)
	if err != nil {
		return err
	}
	defer l.Stop()
	before, err := found.Look(ctx, s.Place())
	if err != nil {
		return err
	}
	file, err := p.fit(example, s)
	if err != nil {
		return err
	}
	t, err := l.connection.start(ctx, file, startOptions{queue: l.Worker.Config.Queue})
	if err != nil {
		return err
	}
	defer func() {
		if ctx.Err() != nil {
			p.abandon(context.WithoutCancel(ctx), l.connection, t)
		}
	}()
	link := l.link(t.ID, t.RunID)
	p.printf("task %s, %s\nits input is in %s\n", t.ID, example.Name, s.Folder)
	if link != "" {
		p.printf("see  %s\n", link)
	}
	p.printf("\n")
	e, err := p.direct(ctx, l.connection, t, example, stay)
	if err != nil {
		return err
	}
	wrong, err := p.judge(ctx, s, example, before, e)
	if err != nil {
		return err
	}
	if link != "" {
		p.printf("\nthe run in the Temporal UI: %s\n", link)
	}
	if stay {
		p.printf("Ctrl-C ends the demo and clears everything away\n")
		if err := l.Wait(ctx); err != nil {
			return err
		}
	}
	return wrong
}

// maxDemos is how many demos of a user can have a server each at the same time.
const maxDemos = 9

// demoFolder is where the n-th demo at the same time has its server's database.
func demoFolder(state string, n int) string {
	return filepath.Join(state, "demo", strconv.Itoa(n))
}

// startDemo starts a worker for the stage, and a server on the first database that no other demo uses.
func (p *program) startDemo(ctx context.Context, s *stage.Stage) (*local, error) {
	state, err := stateFolder()
	if err != nil {
		return nil, err
	}
	for n := 1; ; n++ {
		l, err := startLocal(ctx, localOptions{
			Config: s.Config(), Folder: demoFolder(state, n), Worlds: p.options.Worlds, UI: p.ui, Log: p.streams.Err,
		})
		var taken folderTaken
		if errors.As(err, &taken) && n < maxDemos {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.Server != nil {
			dev, running := findDev()
			l.Named = !running || dev.Address != l.Address
		}
		return l, nil
	}
}

// fit reads the example without the steps that the machine has no part for, and says which these are.
func (p *program) fit(example examples.Example, s *stage.Stage) (taskFile, error) {
	fitting, gone, err := example.Without(s.Without()...)
	if err != nil {
		return taskFile{}, err
	}
	for _, world := range s.Without() {
		p.printf("left out: the steps of world %s: %s\n", world, oneLine(s.Missing[world]))
	}
	if len(gone) > 0 {
		p.printf("left out: %s\n", strings.Join(gone, ", "))
	}
	doc, err := p.check(example.Name+".yaml", fitting.Source, fitting.Values(s.Vars()), "")
	return doc, err
}

// judge prints the report and what is found now. wrong says that the world is not as it should be, or the end another one
// than the example's.
func (p *program) judge(ctx context.Context, s *stage.Stage, example examples.Example, before found.Sight, e ending) (wrong, err error) {
	if e.Report == nil {
		return nil, errors.New(e.Failure)
	}
	p.printf("\n")
	writeReport(p.streams.Out, *e.Report)
	now, err := found.Look(ctx, s.Place())
	if err != nil {
		return nil, err
	}
	var want map[string][]found.Want
	title, status := "found as before, by a look of its own:", compensations.Unwound
	if example.Ends == examples.Commits {
		want, title, status = s.Committed(), "found as the task was to leave it, by a look of its own:", compensations.Committed
	}
	findings := before.Compare(now, want, losses(*e.Report))
	p.printf("\n%s\n", title)
	ok := writeFindings(p.streams.Out, findings)
	switch {
	case !ok && example.Ends == examples.Commits:
		return errors.New("the world is not as the task should have left it"), nil
	case !ok:
		return errors.New("the world is not as it was before"), nil
	case e.Report.Status != status:
		return fmt.Errorf("the task ended as %s, and not as %s", e.Report.Status, status), nil
	}
	return nil, nil
}

func losses(r compensations.Report) []string {
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
	t := table{indent: " "}
	for _, f := range findings {
		sign := "✓"
		if !f.OK {
			sign, ok = "!", false
		}
		t.row(sign, f.World, f.Looked)
		if len(f.Lost) > 0 {
			t.row("", "", "but for what the report names as lost: "+strings.Join(f.Lost, "; "))
		}
		for _, wrong := range f.Wrong {
			t.row("", "", "otherwise: "+oneLine(wrong))
		}
	}
	t.write(w)
	return ok
}
