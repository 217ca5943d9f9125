package faults

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

const usualType = "UsualSaga"

// usual is the usual way: each step's compensation is put on a list when the step has succeeded,
// the list is deferred, and everything runs on the workflow's context with three attempts.
func usual(ctx workflow.Context, trial string) (err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		HeartbeatTimeout:    heartbeat,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: attempts},
	})
	var compensations []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, compensate := range slices.Backward(compensations) {
			err = errors.Join(err, compensate())
		}
	}()
	for _, step := range steps {
		a := addition{Trial: trial, Step: step, Key: trial + "/" + step}
		if err := workflow.ExecuteActivity(ctx, "usual.add", a).Get(ctx, nil); err != nil {
			return err
		}
		compensations = append(compensations, func() error {
			return workflow.ExecuteActivity(ctx, "usual.takeBack", a).Get(ctx, nil)
		})
	}
	return nil
}

func registerUsual(r worker.Registry, s service) {
	r.RegisterWorkflowWithOptions(usual, workflow.RegisterOptions{Name: usualType})
	r.RegisterActivityWithOptions(func(ctx context.Context, a addition) error {
		defer beat(ctx)()
		return retryable(s.addValue(ctx, a))
	}, activity.RegisterOptions{Name: "usual.add"})
	r.RegisterActivityWithOptions(func(ctx context.Context, a addition) error {
		defer beat(ctx)()
		_, err := s.takeBack(ctx, a)
		return retryable(err)
	}, activity.RegisterOptions{Name: "usual.takeBack"})
}

// retryable keeps Temporal from trying again what is refused for good.
func retryable(err error) error {
	if e, ok := errors.AsType[*activities.Error](err); ok {
		return temporal.NewNonRetryableApplicationError(e.Message, string(e.Type), nil)
	}
	return err
}

// beat heartbeats until stop is called.
func beat(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		t := time.NewTicker(heartbeat / 4)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return stop
}
