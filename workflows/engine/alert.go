package engine

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// alerts hand what waits for people to the worker's channels, which send notices. Whoever alerts
// does not wait for that. It is tried until they have taken it, also by the next runs; what they
// have not taken is shown meanwhile. They hear of each once, and may hear of one twice.
type alerts struct {
	isLeaving func() bool       // whether the run waits for nothing else before it ends
	changed   func()            // called when more or less can be told
	note      func(note string) // adds a note to the report

	waiting  []protocol.Alert // in no activity, the oldest first
	flying   int              // alerts that are in one
	flights  int              // the number of activities
	isFailed bool             // the channels did not take one while the run is leaving
	dropped  int              // alerts that were too many to be kept
	patience calls.Patience
	trouble  protocol.Trouble // why the channels do not take them; without a reason if they do
}

// Bounds on alerts. Each is in the history as soon as there are fewer than maxFlights activities: a
// recovery reads there what people have decided about.
const (
	maxFlights = 10
	maxBatch   = 50
	// maxUntold is how many alerts wait at most, and maxUntoldCarried how many bytes of them the next
	// run is handed.
	maxUntold        = 5_000
	maxUntoldCarried = 64 << 10
	// alertGrace is how long a run that could end waits for its alerts.
	alertGrace = 30 * time.Second
)

// send has people told, and returns at once.
func (a *alerts) send(ctx workflow.Context, about ...protocol.Alert) {
	info := workflow.GetInfo(ctx)
	for _, alert := range about {
		if len(a.waiting) >= maxUntold {
			a.dropped++
			continue
		}
		alert.Task, alert.Run, alert.At = info.WorkflowExecution.ID, info.WorkflowExecution.RunID, workflow.Now(ctx)
		a.waiting = append(a.waiting, alert)
	}
	a.flush(ctx)
}

// alertAbout is an alert about a step or its undo.
func alertAbout(s compensations.StepReport) protocol.Alert {
	return protocol.Alert{Step: s.Step, Action: s.Action, State: compensations.UndoState(s.State), Reason: s.Reason,
		Digest: s.Digest}
}

// flush has what waits told, unless enough is being told.
func (a *alerts) flush(ctx workflow.Context) {
	if len(a.waiting) == 0 || a.flights == maxFlights || a.isFailed && a.isLeaving() {
		return
	}
	a.flights++
	ctx, done := workflow.NewDisconnectedContext(ctx)
	workflow.GoNamed(ctx, "alert of "+a.waiting[0].Step, func(ctx workflow.Context) {
		defer done()
		for isTold := true; len(a.waiting) > 0 && (isTold || a.flights == 1 && !a.isLeaving()); {
			isTold = a.tell(ctx)
		}
		a.flights--
	})
}

// resume tells what waits, in a run that had to stay after all.
func (a *alerts) resume(ctx workflow.Context) {
	a.isFailed = false
	a.flush(ctx)
}

// tell sends the oldest alerts. It returns false if the channels have not taken them for a while, or
// not before the run has to end: then they wait on.
func (a *alerts) tell(ctx workflow.Context) (isTold bool) {
	batch := payload.KeepFirst(a.waiting[:min(len(a.waiting), maxBatch)], maxAlerted)
	a.waiting = a.waiting[len(batch):]
	a.flying += len(batch)
	a.flush(ctx) // the rest, beside this
	what := nameAlerts(batch)
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	began := workflow.Now(ctx)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, a.patience.Limit(workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, WaitForCancellation: true, Summary: "alert: " + what,
	})), protocol.AlertActivity, batch)
	_ = workflow.Await(ctx, func() bool { return future.IsReady() || a.isLeaving() })
	if !future.IsReady() {
		_, _ = workflow.AwaitWithTimeout(ctx, alertGrace, future.IsReady)
		cancel()
	}
	err := future.Get(ctx, nil)
	a.flying -= len(batch)
	if err == nil {
		a.patience, a.trouble = calls.NewPatience(0), protocol.Trouble{}
		a.changed()
		return true
	}
	reason, isTriedOn := a.patience.EndSpell(err, activities.Place{})
	if !isTriedOn && ctx.Err() == nil {
		a.note("nobody was alerted about " + what + ": " + compensations.Reason(err))
		return true
	}
	a.waiting = slices.Concat(batch, a.waiting)
	slices.SortStableFunc(a.waiting, func(x, y protocol.Alert) int { return x.At.Compare(y.At) })
	a.isFailed = a.isLeaving()
	if reason != "" {
		if a.trouble.Reason == "" {
			a.trouble.Since = began
		}
		a.trouble.Reason = payload.Clip(reason, payload.MaxWhy)
		a.changed()
	}
	return false
}

// nameAlerts names what alerts are about.
func nameAlerts(all []protocol.Alert) string {
	what := "the task"
	if all[0].Step != "" {
		what = "step " + all[0].Step
	}
	if more := len(all) - 1; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return what
}

// troubles are what is shown while the channels take nothing.
func (a *alerts) troubles() []protocol.Trouble {
	if a.trouble.Reason == "" {
		return nil
	}
	shown := a.trouble
	shown.What = "have people told of " + activities.CountOf(a.untold(), "alert")
	return []protocol.Trouble{shown}
}

// untold is the number of alerts that the channels have not taken.
func (a *alerts) untold() int { return len(a.waiting) + a.flying + a.dropped }

// toCarry returns what the next run has to tell, as far as it can be handed over, and how many
// there are besides.
func (a *alerts) toCarry() (kept []protocol.Alert, dropped int) {
	if len(a.waiting) == 0 {
		return nil, a.dropped
	}
	kept = payload.KeepFirst(a.waiting, maxUntoldCarried)
	return kept, a.dropped + len(a.waiting) - len(kept)
}

// maxAlerted bounds the alerts that are sent at once.
const maxAlerted = 250_000
