package engine

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
)

// deadline is that of a whole task. The zero value never passes.
type deadline struct {
	began time.Time
	limit time.Duration
	timer workflow.Future
}

// watch sets the timer to what is left.
func (d *deadline) watch(ctx workflow.Context, paused time.Duration) {
	left := max(d.began.Add(d.limit+paused).Sub(workflow.Now(ctx)), time.Millisecond)
	d.timer = workflow.NewTimerWithOptions(ctx, left, workflow.TimerOptions{Summary: "the task's deadline"})
}

func (d *deadline) isDue() bool { return d.timer != nil && d.timer.IsReady() }

// end returns why the task ends; nil if it was paused, so that it has time left.
func (d *deadline) end(ctx workflow.Context) *compensations.Cause {
	paused := calls.PausedSince(ctx, d.began)
	if workflow.Now(ctx).Sub(d.began) < d.limit+paused {
		d.watch(ctx, paused)
		return nil
	}
	return &compensations.Cause{Kind: compensations.Deadline,
		Text: fmt.Sprintf("the task's deadline of %s has passed", d.limit)}
}
