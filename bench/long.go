package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

const (
	longSteps = 10_000
	stretch   = 1_000 // steps that are compared: those on a full ledger with those of a task that has no more
	maxFlat   = 1.2   // on a full ledger over a short one, at most
)

type longFigures struct {
	Steps        int     `json:"steps"`
	ForwardMS    float64 `json:"forward_ms_a_step"`
	ForwardRatio float64 `json:"forward_ratio"` // the last stretch over that of a short task, side by side
	ForwardEnds  float64 `json:"forward_ends"`  // the last stretch over the first, minutes apart
	UndoMS       float64 `json:"undo_ms_a_step"`
	UndoRatio    float64 `json:"undo_ratio"` // the first stretch, on a full ledger, over that of a short task
	UndoEnds     float64 `json:"undo_ends"`
	Undone       int     `json:"undone"`
	Recovered    int     `json:"recovered"`       // undone by the recovery of the second task, which was ended half way
	Twice        int     `json:"undone_twice"`    // of the second task, both by its run and by its recovery
	Missing      int     `json:"missing"`         // steps of both tasks that were done and not undone
	RecoverFirst float64 `json:"recover_first_s"` // from the end of the dead run to the first undo of its recovery
}

// long runs a task whose last step fails, and the same again, which is terminated half way through
// the unwinding and recovered.
func long(ctx context.Context) (any, []string, error) {
	c := &calls{}
	s, err := newStage(ctx, noopWorld(c.recordCall))
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	f := longFigures{Steps: longSteps}

	if _, err := s.timed(ctx, "warm-up", protocol.AgentTaskType, document(chainSteps, "")); err != nil {
		return nil, nil, err
	}
	if err := s.whole(ctx, c, &f); err != nil {
		return nil, nil, err
	}
	if err := s.half(ctx, c, &f); err != nil {
		return nil, nil, err
	}

	fmt.Printf(`
%-44s %10s %34s %12s
%-44s %7.2f ms %34.3f %12.3f   (target at most %.2f, side by side)
%-44s %7.2f ms %34.3f %12.3f   (target at most %.2f, side by side)
%-44s %10d of %d
%-44s %10d, %d of them twice, the first after %.1f s

`, fmt.Sprintf("a task of %d steps", longSteps), "a step", fmt.Sprintf("beside a task of %d steps", stretch),
		"last/first",
		"forward", f.ForwardMS, f.ForwardRatio, f.ForwardEnds, maxFlat,
		"undo", f.UndoMS, f.UndoRatio, f.UndoEnds, maxFlat,
		"undone after a failure in the last step", f.Undone, longSteps,
		"terminated half way: undone by the recovery", f.Recovered, f.Twice, f.RecoverFirst)

	var missed []string
	if f.ForwardRatio > maxFlat {
		missed = append(missed,
			fmt.Sprintf("the last %d steps took %.3f times those of a short task, target %.2f", stretch, f.ForwardRatio,
				maxFlat))
	}
	if f.UndoRatio > maxFlat {
		missed = append(missed,
			fmt.Sprintf("the first %d undos took %.3f times those of a short task, target %.2f", stretch, f.UndoRatio, maxFlat))
	}
	if f.Missing > 0 {
		missed = append(missed, fmt.Sprintf("%d steps were not undone", f.Missing))
	}
	return f, missed, nil
}

// whole fails in the last step.
func (s *stage) whole(ctx context.Context, c *calls, f *longFigures) error {
	c.beginPhase(nil, nil)
	run, err := s.startWorkflow(ctx, "long", protocol.AgentTaskType, document(longSteps, ""))
	if err != nil {
		return err
	}
	err = run.Get(ctx, nil)
	var failed *temporal.ApplicationError
	var report compensations.Report
	if !errors.As(err, &failed) || failed.Type() != protocol.TaskFailed {
		return fmt.Errorf("the task should have failed in its last step: %w", err)
	}
	if err := failed.Details(&report); err != nil {
		return err
	}
	f.ForwardMS, f.ForwardEnds = flat(c.forwards)
	f.UndoMS, f.UndoEnds = flat(c.undos)
	f.Undone = report.Outcomes[string(activities.Restored)]
	f.Missing += c.missing()
	return nil
}

// half is terminated half way through the unwinding, and recovered. Beside its last steps and its
// first undos runs a short task, whose ledger is never full.
func (s *stage) half(ctx context.Context, c *calls, f *longFigures) error {
	late, reached := make(chan struct{}), make(chan struct{})
	c.beginPhase(late, reached)
	run, err := s.startWorkflow(ctx, "half", protocol.AgentTaskType, document(longSteps, ""))
	if err != nil {
		return err
	}
	if err := closed(ctx, late); err != nil {
		return err
	}
	short, err := s.startWorkflow(ctx, "beside", protocol.AgentTaskType,
		map[string]any{"name": "bench", "agent": "bench", "steps": noops(beside, stretch)})
	if err != nil {
		return err
	}
	_ = short.Get(ctx, nil) // it fails in its last step
	if err := closed(ctx, reached); err != nil {
		return err
	}
	c.mu.Lock()
	f.ForwardRatio = took(c.forwards[longSteps-stretch:]) / took(c.beside.forwards)
	f.UndoRatio = took(c.undos[:stretch]) / took(c.beside.undos)
	c.mu.Unlock()
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
	f.Twice = len(c.undos) + len(c.beside.undos) - c.distinct()
	f.Missing += c.missing()
	return nil
}

// flat is the time of one of the calls in milliseconds, and that of the last stretch over that of
// the first.
func flat(at []time.Time) (ms, ratio float64) {
	n := len(at)
	if n <= 2*stretch {
		return 0, 0
	}
	first, last := at[stretch].Sub(at[0]), at[n-1].Sub(at[n-1-stretch])
	return at[n-1].Sub(at[0]).Seconds() * 1000 / float64(n-1), last.Seconds() / first.Seconds()
}

func closed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c:
		return nil
	}
}

// took is the time from the first of the calls to the last.
func took(at []time.Time) float64 { return at[len(at)-1].Sub(at[0]).Seconds() }

// beside begins the names of the steps of the short task.
const beside = "beside"

// times are those of the steps of one task.
type times struct{ forwards, undos []time.Time }

// calls keeps when the steps of a long task were done and undone, and those of the short one beside
// it.
type calls struct {
	mu sync.Mutex
	times
	beside  times
	done    map[string]bool // of both; false: undone
	late    chan struct{}   // closed when only one stretch of the long task is left to do; nil: nobody waits
	reached chan struct{}   // closed when half of its undos have begun; nil: nobody waits
}

func (c *calls) beginPhase(late, reached chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times, c.beside, c.done, c.late, c.reached = times{}, times{}, map[string]bool{}, late, reached
}

func (c *calls) recordCall(undo bool, e activities.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		return nil // the warm-up
	}
	c.done[e.Token] = !undo
	t, steps := &c.times, longSteps
	if strings.HasPrefix(e.Step, beside) {
		t, steps = &c.beside, stretch
	}
	if undo {
		t.undos = append(t.undos, time.Now())
		if c.reached != nil && t == &c.times && len(t.undos) == longSteps/2 {
			close(c.reached)
		}
		return nil
	}
	t.forwards = append(t.forwards, time.Now())
	if c.late != nil && t == &c.times && len(t.forwards) == longSteps-stretch {
		close(c.late)
	}
	if len(t.forwards) == steps {
		return activities.Errorf(activities.CheckFailed, "the last step fails")
	}
	return nil
}

// missing counts the steps that were done and not undone.
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
