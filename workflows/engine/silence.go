package engine

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Silence notices when the agent of a session is gone. It has one timer, which is set anew only
// when it fires, so that a step costs no event for it. The zero value notices nothing.
type Silence struct {
	Limit  time.Duration // how long the agent may be silent; zero if nobody minds
	Gone   task.GoneMode
	IsBusy func() bool // whether the agent waits for something
	Alert  func(ctx workflow.Context, why string)

	Heard  time.Time     // when the agent was heard last
	paused time.Duration // for how long nobody could hear it since
	Asked  bool          // a person was alerted since
	timer  workflow.Future
}

// Hear notes that the agent is there.
func (q *Silence) Hear(now time.Time) { q.Heard, q.paused, q.Asked = now, 0, false }

// rest notes that the agent has waited until now.
func (q *Silence) rest(now time.Time) { q.Heard = now }

// isUnwatched reports whether the timer must be set.
func (q *Silence) isUnwatched() bool { return q.Limit > 0 && !q.Asked && q.timer == nil }

// watch sets the timer if it must be.
func (q *Silence) watch(ctx workflow.Context) {
	if q.isUnwatched() {
		left := max(q.Heard.Add(q.Limit+q.paused).Sub(workflow.Now(ctx)), time.Millisecond)
		q.timer = workflow.NewTimerWithOptions(ctx, left, workflow.TimerOptions{Summary: "until the agent counts as gone"})
	}
}

func (q *Silence) isDue() bool { return q.timer != nil && q.timer.IsReady() }

// end does what the session says if its agent was silent for too long: it returns why the session
// ends, or alerts somebody and returns nil.
func (q *Silence) end(ctx workflow.Context) *compensations.Cause {
	q.timer = nil
	if q.hasTime(ctx) {
		return nil
	}
	heard := q.Heard
	if paused := calls.PausedSince(ctx, heard); q.Heard.Equal(heard) { // it was not heard meanwhile
		q.paused = paused
	}
	if q.hasTime(ctx) {
		return nil
	}
	why := fmt.Sprintf("its agent has been silent for %s", q.Limit)
	if q.Gone == task.GoneUnwind {
		return &compensations.Cause{Kind: compensations.Deadline, Text: why}
	}
	q.Asked = true
	q.Alert(ctx, why)
	return nil
}

// hasTime reports whether the agent is not silent for too long yet.
func (q *Silence) hasTime(ctx workflow.Context) bool {
	now := workflow.Now(ctx)
	if q.IsBusy() {
		q.Heard, q.paused = now, 0
	}
	return now.Sub(q.Heard) < q.Limit+q.paused
}
