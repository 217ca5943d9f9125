package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// maxPlans bounds how often a step is planned anew because its target changed under it without anybody being asked.
const maxPlans = 100

// maxAttempts bounds what a task file may ask for.
const maxAttempts = 1_000_000

// errHeld ends a step's coroutine where nothing is started for now: the step goes on from there when a rollback is over, or
// in the next run.
var errHeld = errors.New("held")

// runStep brings one step to its end. Its entry is on the ledger before anything is scheduled: a plan may leave something
// behind too.
func (t *agentTask) runStep(ctx workflow.Context, s *stepRun) error {
	with, err := s.step.Resolve(t.outputs)
	if err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), string(activities.Refused), nil)
	}
	params, err := s.step.EntryParams(with)
	if err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), string(activities.Refused), nil)
	}
	if err := t.makeRoom(ctx, len(params)); err != nil {
		return err
	}
	undo := s.step.Uses + ".undo"
	if s.step.ReadOnly {
		undo = ""
	}
	forward := t.saga.Forward(ctx, compensations.Step{
		ID: s.step.ID, Action: s.step.Uses, Undo: undo, ReadOnly: s.step.ReadOnly, Generation: s.generation, Place: s.step.Place, Needs: s.step.Needs, Keys: s.step.Keys,
		Params: params, Policy: s.step.Undo, Savepoint: s.step.Savepoint, Pivot: s.step.Pivot, Commits: s.step.Commits, Keep: t.compiled.Keep, Pinned: t.compiled.Pinned, Redoes: t.redoes[s.step.ID],
	})
	forward.Step = activities.Step{ID: s.step.ID, Name: s.step.Name, With: with, Checks: s.step.Check}
	s.seq = forward.Entry.Seq
	probes := 0
	for range maxPlans {
		if s.step.Gate.Plans && s.want == "" {
			if err := t.approve(ctx, s, forward); err != nil {
				return err
			}
		}
		if t.holds() {
			return errHeld
		}
		t.enter(s, Running)
		forward.Want = s.want
		result, err := call[activities.Result](ctx, t, s.step, s.step.Uses, s.title(), forward)
		switch {
		case err == nil:
			s.view.Summary = result.Summary
			s.note(result.Notes...)
			t.outputs[s.step.ID] = result.Outputs
			t.room.grow(sizeOf(result.Outputs))
			return nil
		case s.step.Gate.Plans && isType(err, activities.StaleApproval):
			s.note("the target changed after the plan: planned anew")
			s.want = ""
		case isUnknown(err) && ctx.Err() == nil && !s.step.ReadOnly:
			if again := t.probe(ctx, s, forward.Entry, err); !again || probes >= maxProbes {
				return err
			}
			probes++
		default:
			return err
		}
	}
	return temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("the target changed after each of %d plans", maxPlans), string(activities.StaleApproval), nil)
}

// approve plans a step and, where a person must be asked, waits at its gate. A gate that an earlier run has opened is still
// the same.
func (t *agentTask) approve(ctx workflow.Context, s *stepRun, forward activities.Forward) error {
	if s.gate == nil {
		t.enter(s, Planning)
		change, err := call[activities.Change](ctx, t, s.step, s.step.Uses+".plan", "plan "+s.title(), forward)
		if err != nil {
			return err
		}
		why, yes := asks(s.step, change)
		if !yes {
			s.want = change.Digest
			return nil
		}
		s.openings++
		s.gate = openGate(workflow.Now(ctx), s, forward.Entry, change, why)
	}
	digest := s.gate.view.Change.Digest
	if err := t.await(ctx, s); err != nil {
		return err
	}
	s.want = digest
	return nil
}

// breakerPatience is how long a forward waits for a circuit breaker before it fails.
const breakerPatience = time.Hour

// call runs one activity of a step. A worker that stops, or a breaker that is open, costs no attempt: it is scheduled
// anew.
func call[T any](ctx workflow.Context, t *agentTask, s task.Step, activityType, summary string, argument activities.Forward) (T, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           s.Place.Queue,
		StartToCloseTimeout: s.Timeout,
		HeartbeatTimeout:    s.Heartbeat,
		WaitForCancellation: true, // it is undone only when it has ended, or is known to be lost
		Summary:             clip(summary, activities.MaxSummary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: s.Retry.Backoff, MaximumInterval: s.Retry.Max, BackoffCoefficient: 2,
			MaximumAttempts: int32(min(s.Retry.Attempts, maxAttempts)), //nolint:gosec // bounded
		},
	})
	began, pause := workflow.Now(ctx), time.Second
	for {
		var result T
		if err := t.slots.Acquire(ctx, 1); err != nil {
			return result, err
		}
		if t.holds() {
			t.slots.Release(1)
			return result, errHeld
		}
		err := workflow.ExecuteActivity(ctx, activityType, argument).Get(ctx, &result)
		t.slots.Release(1)
		switch {
		case isType(err, activities.WorkerStopping) && ctx.Err() == nil:
		case isType(err, activities.BreakerOpen) && workflow.Now(ctx).Sub(began) < breakerPatience:
			var app *temporal.ApplicationError
			errors.As(err, &app)
			pause = min(max(2*pause, app.NextRetryDelay()), 10*time.Minute)
			if err := workflow.NewTimerWithOptions(ctx, pause, workflow.TimerOptions{
				Summary: "waiting for the circuit breaker of " + s.Uses,
			}).Get(ctx, nil); err != nil {
				return result, err
			}
		default:
			return result, err
		}
	}
}

func isType(err error, t activities.ErrorType) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == string(t)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
