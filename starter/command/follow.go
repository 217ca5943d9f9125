package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/workflows"
)

// view shows a task while it goes on.
type view interface {
	// show shows a state that was seen at now.
	show(s workflows.State, now time.Time)
	// say puts a line between what is shown.
	say(line string)
	// close leaves the screen to what comes next.
	close()
}

// The polls of a task's state: often while it changes, seldom while it waits.
const (
	pollFirst = 200 * time.Millisecond
	pollLast  = 2 * time.Second
)

// follow shows a task until it is closed, and says how it ended. The state is polled: a query leaves no trace in the
// history. What went by between the last look and the end is shown from the end.
func (c *connection) follow(ctx context.Context, t taskRun, v view) (ending, error) {
	defer v.close()
	for {
		e, err := c.followRun(ctx, t, v)
		if err != nil {
			return e, err
		}
		// A run that was reset ends as terminated, and another one goes on under the same id.
		now, err := c.describe(ctx, t.ID)
		if err != nil || now.RunID == t.RunID || e.Report != nil {
			return e, err
		}
		v.say("the task was reset: following run " + now.RunID)
		t = now
	}
}

func (c *connection) followRun(ctx context.Context, t taskRun, v view) (ending, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		ending
		error
	}
	ended := make(chan result, 1)
	go func() {
		e, err := c.end(ctx, t.ID, t.RunID)
		ended <- result{e, err}
	}()
	pause, last, lost := pollFirst, "", false
	for {
		s, err := c.state(ctx, t.ID, t.RunID)
		why, silent := silence(err, t)
		switch {
		case silent:
			if !lost {
				lost = true
				v.say("waiting: " + why)
			}
		case err != nil && ctx.Err() == nil:
			return ending{}, err
		case err == nil:
			if lost {
				lost = false
				v.say("a worker answers again")
			}
			v.show(s, time.Now())
			pause = min(2*pause, pollLast)
			if seen := signalPayload(s); seen != last {
				pause, last = pollFirst, seen
			}
		}
		select {
		case r := <-ended:
			if r.error == nil {
				c.showEnd(ctx, t, r.ending, v)
			}
			return r.ending, r.error
		case <-time.After(pause):
		}
	}
}

// showEnd shows the last state, from a worker where one still answers, for it knows the steps' own ends; else from the
// report.
func (c *connection) showEnd(ctx context.Context, t taskRun, e ending, v view) {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := c.state(limited, t.ID, t.RunID)
	if err != nil || s.Phase != workflows.Closed {
		s = closedState(t, e)
	}
	v.show(s, time.Now())
}

// plainView writes a line for each thing that happens, for a file or a pipe.
type plainView struct {
	out io.Writer
	n   *narrator
}

func newPlainView(c *connection, t taskRun, out io.Writer) *plainView {
	return &plainView{out, newNarrator(c, t, out, out)}
}

func (v *plainView) show(s workflows.State, now time.Time) { v.n.tell(s, now) }
func (v *plainView) say(line string)                       { fmt.Fprintln(v.out, line) }
func (v *plainView) close()                                {}

// title is a task in one line.
func title(t taskRun, s workflows.State) string {
	parts := []string{"task " + t.ID}
	if name := firstOf(s.Name, t.Name); name != "" {
		parts = append(parts, oneLine(name))
	}
	if agent := firstOf(t.Agent, s.Agent); agent != "" {
		parts = append(parts, "agent "+oneLine(agent))
	}
	return strings.Join(parts, " · ")
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
