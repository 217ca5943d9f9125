package follow

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// The polls of a task's state: often while it changes, seldom while it waits.
const (
	pollFirst = 200 * time.Millisecond
	pollLast  = 2 * time.Second
)

// Task shows a task until it is closed, and says how it ended. The state is polled: a query leaves
// no trace in the history. What went by between the last look and the end is shown from the end.
// alone says that nobody can decide here: when the task waits for a person, that is the error
// NeedsPerson.
func Task(ctx context.Context, c *tasks.Client, t tasks.Run, v View, alone bool) (tasks.Ending, error) {
	defer v.Close()
	for {
		e, err := followRun(ctx, c, t, v, alone)
		if err != nil {
			return e, err
		}
		// A run that was reset ends as terminated, and another one goes on under the same id.
		now, err := c.Describe(ctx, t.ID)
		if err != nil || now.RunID == t.RunID || e.Report != nil {
			return e, err
		}
		v.PrintLine("the task was reset: following run " + now.RunID)
		t = now
	}
}

func followRun(ctx context.Context, c *tasks.Client, t tasks.Run, v View, alone bool) (tasks.Ending, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		tasks.Ending
		error
	}
	ended := make(chan result, 1)
	go func() {
		e, err := c.AwaitEnd(ctx, t.ID, t.RunID)
		ended <- result{e, err}
	}()
	pause, last, lost := pollFirst, protocol.State{}, false
	progress := progress{client: c, id: t.ID}
	for {
		s, err := c.QueryState(ctx, t.ID, t.RunID)
		why, silent := tasks.SilenceReason(err, t)
		switch {
		case silent:
			if !lost {
				lost = true
				v.PrintLine("waiting: " + why)
			}
		case err != nil && ctx.Err() == nil:
			return tasks.Ending{}, err
		case err == nil:
			if lost {
				lost = false
				v.PrintLine("a worker answers again")
			}
			progress.addTo(ctx, &s)
			v.ShowState(s, time.Now())
			if needs := whatNeedsPerson(s); alone && needs.isAny() {
				return tasks.Ending{}, needs
			}
			pause = min(2*pause, pollLast)
			if !reflect.DeepEqual(s, last) {
				pause, last = pollFirst, s
			}
		}
		select {
		case r := <-ended:
			if r.error == nil {
				showEnd(ctx, c, t, r.Ending, v)
			}
			return r.Ending, r.error
		case <-time.After(pause):
		}
	}
}

// NeedsPerson says what a task waits for that only a person can decide.
type NeedsPerson struct {
	Gates, Failed, Parked []string // steps
	More                  int      // counts those at gates, or that failed, which are not listed
	Stuck                 string   // why the task cannot go on
}

func (n NeedsPerson) Error() string {
	var all []string
	for _, step := range n.Gates {
		all = append(all, "step "+step+" is at its gate")
	}
	for _, step := range n.Failed {
		all = append(all, "step "+step+" failed and is parked")
	}
	for _, step := range n.Parked {
		all = append(all, "the undo of step "+step+" is parked")
	}
	if n.Stuck != "" {
		all = append(all, "it is stuck: "+n.Stuck)
	}
	if n.More > 0 {
		all = append(all, fmt.Sprintf("and %d more", n.More))
	}
	return strings.Join(all, "; ")
}

func (n NeedsPerson) isAny() bool {
	return n.Stuck != "" || len(n.Gates)+len(n.Failed)+len(n.Parked) > 0
}

func whatNeedsPerson(s protocol.State) NeedsPerson {
	n := NeedsPerson{More: s.MoreGates + s.MoreParks, Stuck: s.Stuck}
	for _, g := range s.Gates {
		n.Gates = append(n.Gates, g.Step)
	}
	for _, p := range s.Parks {
		n.Failed = append(n.Failed, p.Step)
	}
	if s.Report != nil && s.Phase != protocol.Closed {
		for _, r := range s.Report.Steps {
			if compensations.UndoState(r.State) == compensations.Parked {
				n.Parked = append(n.Parked, r.Step)
			}
		}
	}
	return n
}

// showEnd shows the last state, from a worker where one still answers, for it knows the steps' own
// ends; else from the report.
func showEnd(ctx context.Context, c *tasks.Client, t tasks.Run, e tasks.Ending, v View) {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, err := c.QueryState(limited, t.ID, t.RunID)
	if err != nil || s.Phase != protocol.Closed {
		s = tasks.ClosedState(t, e)
	}
	v.ShowState(s, time.Now())
}
