package main

import (
	"context"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// bare is the usual way: activities in a row, compensations collected in a slice and deferred.
func bare(ctx workflow.Context, steps int) (err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var compensations []func(workflow.Context)
	defer func() {
		if err == nil {
			return
		}
		for _, compensation := range slices.Backward(compensations) {
			compensation(ctx)
		}
	}()
	for range steps {
		if err := workflow.ExecuteActivity(ctx, "bare").Get(ctx, nil); err != nil {
			return err
		}
		compensations = append(compensations, func(ctx workflow.Context) {
			_ = workflow.ExecuteActivity(ctx, "bare").Get(ctx, nil)
		})
	}
	return nil
}

func registerBare(r worker.Registry) {
	r.RegisterWorkflowWithOptions(bare, workflow.RegisterOptions{Name: "bare"})
	r.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "bare"})
}
