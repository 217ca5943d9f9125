package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// steps are those of each trial, in their order.
var steps = []string{"first", "second", "third"}

// fault is thrown at one trial of each side.
type fault struct {
	name  string
	title string
	// script is how the service misbehaves.
	script script
	// throw does what the service cannot; nil: nothing.
	throw func(context.Context, *trial) error
	// timeout is the execution timeout that the trial is started with; zero: none.
	timeout time.Duration
	// killed says that the trial has a worker process of its own, which throw kills.
	killed bool
}

var faults = []fault{
	{
		name: "cancel", title: "canceled during step 2",
		script: script{hangs: "second", times: attempts},
		throw:  cancels,
	},
	{
		name: "lie", title: "step 1 acts, but reports an error",
		script: script{lies: "first"},
	},
	{
		name:   "undo-down",
		title:  fmt.Sprintf("step 3 is refused, and the undo of step 2 is down for %d attempts", attempts+1),
		script: script{refuses: "third", down: "second", downFor: attempts + 1},
	},
	{
		name: "terminate", title: "terminated during step 2",
		script: script{hangs: "second", times: attempts},
		throw:  terminates,
	},
	{
		name: "terminate-undo", title: "step 3 is refused, and it is terminated while it undoes step 2",
		script: script{refuses: "third", down: "second", downFor: attempts},
		throw:  terminates,
	},
	{
		name: "kill", title: "worker killed during step 2, and started again",
		script: script{hangs: "second", times: 1}, throw: kills(1), killed: true,
	},
	{
		name: "kills", title: fmt.Sprintf("worker killed during each of the %d attempts of step 2", attempts),
		script: script{hangs: "second", times: attempts}, throw: kills(attempts), killed: true,
	},
	{
		name: "timeout", title: "execution timeout during step 2",
		script: script{hangs: "second", times: attempts}, timeout: 15 * time.Second,
	},
}

func cancels(ctx context.Context, t *trial) error {
	if err := t.caught(ctx); err != nil {
		return err
	}
	return t.stage.client.CancelWorkflow(ctx, t.run.GetID(), t.run.GetRunID())
}

func terminates(ctx context.Context, t *trial) error {
	if err := t.caught(ctx); err != nil {
		return err
	}
	return t.stage.client.TerminateWorkflow(ctx, t.run.GetID(), t.run.GetRunID(), "a fault")
}

// kills ends the worker by SIGKILL so often, each time when step 2 has acted and has not told, and
// starts it again.
func kills(times int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		for range times {
			if err := errors.Join(t.caught(ctx), t.worker.kill(), t.worker.startWorker()); err != nil {
				return err
			}
		}
		return nil
	}
}
