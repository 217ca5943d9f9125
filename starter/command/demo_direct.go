package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/workflows"
)

// gatePatience is how long the demo leaves a gate to the person at the terminal; a variable so that a test need not wait.
var gatePatience = time.Minute

// cancelAfter is how long a step must run before the demo cancels under it: long enough to have changed something.
const cancelAfter = 3 * time.Second

// director plays the people of an example: who approves, rejects, cancels. It sees what the view has shown, and so decides
// nothing that nobody could have read.
type director struct {
	view
	*connection
	task    taskRun
	example examples.Example
	// person says that somebody may be at the terminal; alone, why not.
	person bool
	alone  string
	told   map[activities.Digest]bool // gates that were left to the person

	seen chan workflows.State // the last state that was shown and not looked at yet
	stop context.CancelFunc
	done chan struct{}
}

// direct follows a task to its end, and plays the people in it that nobody else plays.
func (p *program) direct(ctx context.Context, c *connection, t taskRun, example examples.Example, stay bool) (ending, error) {
	d := &director{
		view: newView(c, t, p.streams.Out), connection: c, task: t, example: example,
		person: stay && isTerminal(p.streams.In), alone: "nobody is at a terminal", told: map[activities.Digest]bool{},
		seen: make(chan workflows.State, 1), done: make(chan struct{}),
	}
	if !stay {
		d.alone = "--exit does not wait"
	}
	ctx, d.stop = context.WithCancel(ctx)
	go d.play(ctx)
	return c.follow(ctx, t, d)
}

func (d *director) show(s workflows.State, now time.Time) {
	d.view.show(s, now)
	select {
	case <-d.seen: // it is old by now
	default:
	}
	d.seen <- s
}

func (d *director) close() {
	d.stop()
	<-d.done
	d.view.close()
}

// play acts until ctx ends.
func (d *director) play(ctx context.Context) {
	defer close(d.done)
	canceled := false
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-d.seen:
			for _, g := range s.Gates {
				d.decide(ctx, g)
			}
			if d.example.Ends == examples.Canceled && !canceled && onlyRunning(s, time.Now()) {
				canceled = true
				d.cancel(ctx)
			}
		}
	}
}

func (d *director) cancel(ctx context.Context) {
	d.say("the demo cancels the task now, as `starter cancel " + quoted(d.task.ID) + "` does")
	if err := d.CancelWorkflow(ctx, d.task.ID, d.task.RunID); err != nil {
		d.say(fmt.Sprintf("cancel: %v", err))
	}
}

// decide decides a gate, once the person had the time to.
func (d *director) decide(ctx context.Context, g workflows.GateView) {
	name, verb := workflows.SignalApprove, "approves"
	if d.example.Ends == examples.Rejected {
		name, verb = workflows.SignalReject, "rejects"
	}
	why := d.alone
	if d.person {
		if !d.told[g.Digest] {
			d.told[g.Digest] = true
			d.say(fmt.Sprintf("decide it from another terminal; in %s the demo %s it itself", gatePatience, verb))
		}
		if time.Since(g.Since) < gatePatience {
			return
		}
		why = fmt.Sprintf("nobody has decided for %s", gatePatience)
		d.person = false // nor will anybody at the next one
	}
	d.say(fmt.Sprintf("%s: the demo %s step %s itself, by the signal %q", why, verb, g.Step, name))
	decision := workflows.Decision{Step: g.Step, Digest: g.Digest, Who: "starter demo", Why: why}
	if err := d.signal(ctx, d.task, name, decision, func(s workflows.State) bool { return !waits(s, g.Digest) }); err != nil && ctx.Err() == nil {
		d.say(fmt.Sprintf("%s: %v", name, err))
	}
}

// onlyRunning says that every step that is not done has been running for a while.
func onlyRunning(s workflows.State, now time.Time) bool {
	running := 0
	for _, v := range s.Steps {
		switch {
		case v.State == workflows.Running && now.Sub(v.Began) >= cancelAfter:
			running++
		case v.State != workflows.Done:
			return false
		}
	}
	return running > 0
}

// abandonLimit is how long an interrupted task may unwind before it is given up.
const abandonLimit = 20 * time.Second

// abandon ends a task whose stage is about to be cleared away.
func (p *program) abandon(ctx context.Context, c *connection, t taskRun) {
	now, err := c.describe(ctx, t.ID)
	if err != nil || now.closed() {
		return
	}
	fmt.Fprintln(p.streams.Err, "interrupted: the task is canceled and unwinds")
	limited, cancel := context.WithTimeout(ctx, abandonLimit)
	defer cancel()
	if err := c.CancelWorkflow(limited, t.ID, ""); err == nil {
		if _, err := c.end(limited, t.ID, ""); err == nil {
			return
		}
	}
	fmt.Fprintf(p.streams.Err, "the task has not unwound within %s: it is terminated, and its input is cleared away with the rest\n", abandonLimit)
	if err := c.TerminateWorkflow(ctx, t.ID, "", "the demo was interrupted, and cleared its input away"); err != nil {
		fmt.Fprintln(p.streams.Err, err)
	}
}

// lockedWriter lets one write through at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// oneAtATime makes a writer fit for several goroutines. A file is: and must stay one, to be known as a terminal.
func oneAtATime(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &lockedWriter{w: w}
}
