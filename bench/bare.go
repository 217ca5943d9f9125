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

// bareCalls runs an activity for each update until it is canceled: what a call costs a session at
// least.
func bareCalls(ctx workflow.Context) error {
	err := workflow.SetUpdateHandler(ctx, bareUpdate, func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "bare").Get(ctx, nil)
	})
	if err != nil {
		return err
	}
	return workflow.Await(ctx, func() bool { return false })
}

const bareUpdate = "call"

func registerBare(r worker.Registry) {
	r.RegisterWorkflowWithOptions(bare, workflow.RegisterOptions{Name: "bare"})
	r.RegisterWorkflowWithOptions(bareCalls, workflow.RegisterOptions{Name: "bare-calls"})
	r.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "bare"})
}
