package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/starter/follow"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// gatePatience is how long the demo leaves a gate to the person at the terminal; a variable, for
// tests.
var gatePatience = time.Minute

// cancelAfter is how long a step must have run before the demo cancels the task: long enough to
// have changed something.
const cancelAfter = 3 * time.Second

// director plays the people of an example, who approve, reject or cancel. It decides only about
// what the view has shown.
type director struct {
	follow.View
	*tasks.Client
	task    tasks.Run
	example examples.Example
	// person says that somebody may be at the terminal; whyAlone, why nobody is.
	person    bool
	whyAlone  string
	announced map[activities.Digest]bool // gates that the person was asked to decide
	decided   map[activities.Digest]bool // gates that the demo has decided

	shown chan protocol.State // the last state shown, until playPeople takes it
	news  chan struct{}       // takes a value for each state shown, where catchUp waits
	stop  context.CancelFunc
	done  chan struct{}
}

// directTask follows a task to its end, and decides what no person decides.
func (p *program) directTask(ctx context.Context, c *tasks.Client, t tasks.Run, example examples.Example,
	stay bool) (tasks.Ending, error) {
	d := &director{
		View: follow.NewView(c.Server, t, p.streams.Out), Client: c, task: t, example: example,
		person: stay &&
			terminal.IsTerminal(p.streams.In), whyAlone: "nobody is at a terminal", announced: map[activities.Digest]bool{},
		decided: map[activities.Digest]bool{},
		shown:   make(chan protocol.State, 1), news: make(chan struct{}), done: make(chan struct{}),
	}
	if !stay {
		d.whyAlone = "--exit does not wait"
	}
	following, stop := context.WithCancel(ctx)
	d.stop = stop
	worked := make(chan error, 1)
	go func() {
		if len(example.Acts) == 0 {
			worked <- nil
			return
		}
		a := scriptedAgent{Session: session.Attach(c.Client, t.ID), say: d.PrintLine,
			catchUp: func() { d.catchUp(following) }}
		worked <- a.work(ctx, example.Acts)
	}()
	go d.playPeople(following)
	e, err := follow.Task(following, c, t, d, false)
	return e, errors.Join(err, <-worked)
}

func (d *director) ShowState(s protocol.State, now time.Time) {
	d.View.ShowState(s, now)
	select {
	case <-d.shown: // it is old by now
	default:
	}
	d.shown <- s
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// catchUp waits until the view shows what is true now: the next state may have been asked for
// before.
func (d *director) catchUp(ctx context.Context) {
	for range 2 {
		select {
		case <-d.news:
		case <-ctx.Done():
			return
		}
	}
}

func (d *director) Close() {
	d.stop()
	<-d.done
	d.View.Close()
}

// playPeople decides and cancels until ctx ends.
func (d *director) playPeople(ctx context.Context) {
	defer close(d.done)
	canceled := false
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-d.shown:
			for _, g := range s.Gates {
				d.decideGate(ctx, g)
			}
			if d.example.Ends == examples.Canceled && !canceled && onlyRunning(s, time.Now()) {
				canceled = true
				d.cancelTask(ctx)
			}
		}
	}
}

func (d *director) cancelTask(ctx context.Context) {
	d.PrintLine("the demo cancels the task now, as `starter cancel " + terminal.ShellQuote(d.task.ID) + "` does")
	if err := d.CancelWorkflow(ctx, d.task.ID, d.task.RunID); err != nil {
		d.PrintLine(fmt.Sprintf("cancel: %v", err))
	}
}

// decideGate decides a gate, after gatePatience if a person may decide it.
func (d *director) decideGate(ctx context.Context, g protocol.GateView) {
	if d.decided[g.Digest] {
		return
	}
	name, verb := protocol.SignalApprove, "approves"
	if d.example.Ends == examples.Rejected {
		name, verb = protocol.SignalReject, "rejects"
	}
	why := d.whyAlone
	if d.person {
		if !d.announced[g.Digest] {
			d.announced[g.Digest] = true
			d.PrintLine(fmt.Sprintf("decide it from another terminal; in %s the demo %s it itself", gatePatience, verb))
		}
		if time.Since(g.Since) < gatePatience {
			return
		}
		why = fmt.Sprintf("nobody has decided for %s", gatePatience)
		d.person = false // do not wait again at the next gate
	}
	d.PrintLine(fmt.Sprintf("%s: the demo %s step %s itself, with the signal %q", why, verb, g.Step, name))
	decision := protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "starter demo", Why: why}
	d.decided[g.Digest] = true
	if err := d.SignalWorkflow(ctx, d.task.ID, "", name, decision); err != nil && ctx.Err() == nil {
		d.PrintLine(fmt.Sprintf("%s: %v", name, err))
	}
}

// onlyRunning says that every step that is not done has been running for a while.
func onlyRunning(s protocol.State, now time.Time) bool {
	running := 0
	for _, v := range s.Steps {
		switch {
		case v.State == protocol.Running && now.Sub(v.Began) >= cancelAfter:
			running++
		case v.State != protocol.Done:
			return false
		}
	}
	return running > 0
}

// abandonLimit is how long an interrupted task may take to unwind before it is terminated.
const abandonLimit = 20 * time.Second

// abandonTask ends a task whose stage is about to be removed.
func (p *program) abandonTask(ctx context.Context, c *tasks.Client, t tasks.Run) {
	now, err := c.Describe(ctx, t.ID)
	if err != nil || now.Closed() {
		return
	}
	fmt.Fprintln(p.streams.Err, "interrupted: the task is canceled and unwinds")
	limited, cancel := context.WithTimeout(ctx, abandonLimit)
	defer cancel()
	if err := c.CancelWorkflow(limited, t.ID, ""); err == nil {
		if _, err := c.AwaitEnd(limited, t.ID, ""); err == nil {
			return
		}
	}
	fmt.Fprintf(p.streams.Err,
		"the task has not unwound within %s: it is terminated, and its input is removed with the rest\n", abandonLimit)
	if err := c.TerminateWorkflow(ctx, t.ID, "", "the demo was interrupted, and removed its input"); err != nil {
		fmt.Fprintln(p.streams.Err, err)
	}
}

// lockedWriter serializes writes.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// lockWriter makes a writer safe for several goroutines. A file is safe already, and must stay one
// to be recognized as a terminal.
func lockWriter(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &lockedWriter{w: w}
}
