// Package notices tells people what waits for them: a workflow for each channel of the workers, so
// that no task waits for a channel, and no channel for another.
package notices

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Notices sends what is due, and ends when nothing waits any more. What comes after that starts it
// again.
func Notices(ctx workflow.Context, n protocol.Notices) error {
	signals := workflow.GetSignalChannel(ctx, protocol.SignalWaiting)
	acting := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 5 * time.Minute, Summary: n.Channel,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	for {
		receive(ctx, signals, &n)
		if n.IsEmpty() {
			return nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, protocol.NoticesType, n)
		}
		var next protocol.Notices
		err := workflow.ExecuteActivity(acting, protocol.NoticesActivity, workflow.Now(ctx), n).Get(ctx, &next)
		if err != nil {
			return err
		}
		n = next
		workflow.SetCurrentDetails(ctx, describe(n))
		if !n.IsEmpty() && signals.Len() == 0 {
			if err := awaitDue(ctx, signals, &n); err != nil {
				return err
			}
		}
	}
}

// receive takes up what has come. What cannot be read is dropped: it would hold up the rest for ever.
func receive(ctx workflow.Context, signals workflow.ReceiveChannel, n *protocol.Notices) {
	for {
		var raw converter.RawValue
		if !signals.ReceiveAsync(&raw) {
			return
		}
		var waiting []protocol.Waiting
		if err := calls.ReadInput(raw, &waiting); err != nil {
			workflow.GetLogger(ctx).Warn("a signal cannot be read, and is dropped", "reason", err)
			continue
		}
		n.Add(waiting)
	}
}

// awaitDue waits until something is due, or comes.
func awaitDue(ctx workflow.Context, signals workflow.ReceiveChannel, n *protocol.Notices) error {
	timing, cancel := workflow.WithCancel(ctx)
	defer cancel()
	due := workflow.NewTimerWithOptions(timing, max(n.Next.Sub(workflow.Now(ctx)), time.Second),
		workflow.TimerOptions{Summary: "next notice"})
	workflow.NewSelector(ctx).
		AddFuture(due, func(workflow.Future) {}).
		AddReceive(signals, func(from workflow.ReceiveChannel, _ bool) { receive(ctx, from, n) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
		Select(ctx)
	return ctx.Err()
}

// describe says in the Temporal UI what the channel has to tell.
func describe(n protocol.Notices) string {
	text := "in its care: " + activities.CountOf(len(n.Waiting)+n.More, "alert") + "\n"
	switch {
	case n.Trouble == "":
	case n.Failures == 0:
		text = fmt.Sprintf("**not everybody is told**: %s\n\n", payload.Cell(n.Trouble)) + text
	default:
		text = fmt.Sprintf("**failing**, attempt number %d: %s\n\n", n.Failures, payload.Cell(n.Trouble)) + text
	}
	return activities.Visible(text)
}
