package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// silence notices when the agent of a session is gone. It has one timer, which is set anew only when it fires, so that a step costs
// no event for it. The zero value notices nothing.
type silence struct {
	limit  time.Duration // how long the agent may be silent; zero if nobody minds
	gone   task.GoneMode
	isBusy func() bool // whether the agent waits for something
	alert  func(ctx workflow.Context, why string)

	heard  time.Time     // when the agent was heard last
	paused time.Duration // for how long nobody could hear it since
	asked  bool          // a person was alerted since
	timer  workflow.Future
}

// hear notes that the agent is there.
func (q *silence) hear(now time.Time) { q.heard, q.paused, q.asked = now, 0, false }

// rest notes that the agent has waited until now.
func (q *silence) rest(now time.Time) { q.heard = now }

// isUnwatched reports whether the timer must be set.
func (q *silence) isUnwatched() bool { return q.limit > 0 && !q.asked && q.timer == nil }

// watch sets the timer if it must be.
func (q *silence) watch(ctx workflow.Context) {
	if q.isUnwatched() {
		left := max(q.heard.Add(q.limit+q.paused).Sub(workflow.Now(ctx)), time.Millisecond)
		q.timer = workflow.NewTimerWithOptions(ctx, left, workflow.TimerOptions{Summary: "until the agent counts as gone"})
	}
}

func (q *silence) isDue() bool { return q.timer != nil && q.timer.IsReady() }

// end does what the session says if its agent was silent for too long: it returns why the session ends, or alerts somebody and
// returns nil.
func (q *silence) end(ctx workflow.Context) *compensations.Cause {
	q.timer = nil
	if q.hasTime(ctx) {
		return nil
	}
	heard := q.heard
	if paused := pausedSince(ctx, heard); q.heard.Equal(heard) { // it was not heard meanwhile
		q.paused = paused
	}
	if q.hasTime(ctx) {
		return nil
	}
	why := fmt.Sprintf("its agent has been silent for %s", q.limit)
	if q.gone == task.GoneUnwind {
		return &compensations.Cause{Kind: compensations.Deadline, Text: why}
	}
	q.asked = true
	q.alert(ctx, why)
	return nil
}

// hasTime reports whether the agent is not silent for too long yet.
func (q *silence) hasTime(ctx workflow.Context) bool {
	now := workflow.Now(ctx)
	if q.isBusy() {
		q.heard, q.paused = now, 0
	}
	return now.Sub(q.heard) < q.limit+q.paused
}
