package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

const (
	longSteps = 10_000
	stretch   = 1_000 // steps at each end that are compared
	maxFlat   = 1.2   // the last stretch over the first, at most
)

type longFigures struct {
	Steps        int     `json:"steps"`
	ForwardMS    float64 `json:"forward_ms_a_step"`
	ForwardRatio float64 `json:"forward_ratio"` // last stretch over first
	UndoMS       float64 `json:"undo_ms_a_step"`
	UndoRatio    float64 `json:"undo_ratio"`
	Undone       int     `json:"undone"`
	Recovered    int     `json:"recovered"`       // undone by the recovery of the second task, which was ended half way
	Twice        int     `json:"undone_twice"`    // of the second task, by its run and by its recovery
	Missing      int     `json:"missing"`         // steps of both tasks that were done and not undone
	RecoverFirst float64 `json:"recover_first_s"` // from the end of the dead run to the first undo of its recovery
}

// long runs a task whose last step fails, and the same again, which is terminated half way through the unwinding and
// recovered.
func long(ctx context.Context) (any, []string, error) {
	c := &calls{}
	s, err := newStage(ctx, noopWorld(c.take))
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	f := longFigures{Steps: longSteps}

	if _, err := s.timed(ctx, "warm-up", workflows.AgentTaskType, document(chainSteps, "")); err != nil {
		return nil, nil, err
	}
	if err := s.whole(ctx, c, &f); err != nil {
		return nil, nil, err
	}
	if err := s.half(ctx, c, &f); err != nil {
		return nil, nil, err
	}

	fmt.Printf(`
%-52s %10s %12s
%-52s %7.2f ms %12.3f   (target at most %.2f)
%-52s %7.2f ms %12.3f   (target at most %.2f)
%-52s %10d of %d
%-52s %10d, %d of them twice, the first after %.1f s

`, fmt.Sprintf("a task of %d steps", longSteps), "a step", "last/first",
		"forward", f.ForwardMS, f.ForwardRatio, maxFlat,
		"undo", f.UndoMS, f.UndoRatio, maxFlat,
		"undone after a failure in the last step", f.Undone, longSteps,
		"terminated half way: undone by the recovery", f.Recovered, f.Twice, f.RecoverFirst)

	var missed []string
	if f.ForwardRatio > maxFlat {
		missed = append(missed, fmt.Sprintf("the last %d steps took %.3f times the first, target %.2f", stretch, f.ForwardRatio, maxFlat))
	}
	if f.UndoRatio > maxFlat {
		missed = append(missed, fmt.Sprintf("the last %d undos took %.3f times the first, target %.2f", stretch, f.UndoRatio, maxFlat))
	}
	if f.Missing > 0 {
		missed = append(missed, fmt.Sprintf("%d steps were not undone", f.Missing))
	}
	return f, missed, nil
}

// whole fails in the last step.
func (s *stage) whole(ctx context.Context, c *calls, f *longFigures) error {
	c.begin(0, nil)
	run, err := s.start(ctx, "long", workflows.AgentTaskType, document(longSteps, ""))
	if err != nil {
		return err
	}
	err = run.Get(ctx, nil)
	var failed *temporal.ApplicationError
	var report compensations.Report
	if !errors.As(err, &failed) || failed.Type() != workflows.TaskFailed {
		return fmt.Errorf("the task should have failed in its last step: %w", err)
	}
	if err := failed.Details(&report); err != nil {
		return err
	}
	f.ForwardMS, f.ForwardRatio = flat(c.forwards)
	f.UndoMS, f.UndoRatio = flat(c.undos)
	f.Undone = report.Outcomes[string(activities.Restored)]
	f.Missing += c.missing()
	return nil
}

// half is terminated half way through the unwinding, and recovered.
func (s *stage) half(ctx context.Context, c *calls, f *longFigures) error {
	reached := make(chan struct{})
	c.begin(longSteps/2, reached)
	run, err := s.start(ctx, "half", workflows.AgentTaskType, document(longSteps, ""))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-reached:
	}
	if err := s.client.TerminateWorkflow(ctx, run.GetID(), "", "the bench ends it"); err != nil {
		return err
	}
	ended := time.Now()
	server := recovery.Server{Client: s.client, Namespace: "default"}
	dead, err := server.Find(ctx, run.GetID())
	if err != nil {
		return err
	}
	before := c.undone()
	again, err := server.Recover(ctx, dead, "bench")
	if err != nil {
		return err
	}
	var report compensations.Report
	if err := s.client.GetWorkflow(ctx, again.WorkflowID, "").Get(ctx, &report); err != nil {
		return err
	}
	f.Recovered = c.undone() - before
	f.RecoverFirst = c.undos[before].Sub(ended).Seconds()
	f.Twice = len(c.undos) - c.distinct()
	f.Missing += c.missing()
	return nil
}

// flat is the time of one of the calls in milliseconds, and that of the last stretch over that of the first.
func flat(at []time.Time) (ms, ratio float64) {
	n := len(at)
	if n <= 2*stretch {
		return 0, 0
	}
	first, last := at[stretch].Sub(at[0]), at[n-1].Sub(at[n-1-stretch])
	return at[n-1].Sub(at[0]).Seconds() * 1000 / float64(n-1), last.Seconds() / first.Seconds()
}

// calls keeps when the steps of one task were done and undone.
type calls struct {
	mu       sync.Mutex
	forwards []time.Time
	undos    []time.Time
	done     map[string]bool // false: undone
	at       int             // how many undos until reached is closed
	reached  chan struct{}
}

func (c *calls) begin(at int, reached chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forwards, c.undos, c.done, c.at, c.reached = nil, nil, map[string]bool{}, at, reached
}

func (c *calls) take(undo bool, e activities.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		return nil // the warm-up
	}
	c.done[e.Token] = !undo
	if undo {
		if c.undos = append(c.undos, time.Now()); len(c.undos) == c.at {
			close(c.reached)
		}
		return nil
	}
	if c.forwards = append(c.forwards, time.Now()); len(c.forwards) == longSteps {
		return activities.Errorf(activities.CheckFailed, "the last step fails")
	}
	return nil
}

// missing counts what was done and not undone.
func (c *calls) missing() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, done := range c.done {
		if done {
			n++
		}
	}
	return n
}

func (c *calls) undone() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.undos)
}

func (c *calls) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}
