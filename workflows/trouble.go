package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxTroubles is how many troubles are shown.
const maxTroubles = 20

// troubles are those of one workflow, the oldest first. The zero value keeps them to itself.
type troubles struct {
	open    []*protocol.Trouble
	changed func()
	alert   func(workflow.Context, compensations.StepReport)
}

// persist runs an activity until it succeeds, fails for good, is canceled, or has used up its ScheduleToCloseTimeout, if it has one. What
// fails for minutes is shown, and alerts a person.
func (t *troubles) persist(ctx workflow.Context, o workflow.ActivityOptions, at activities.Place, wait time.Duration, activity string, argument, result any) error {
	p := newPatience(wait)
	now := &protocol.Trouble{What: o.Summary, Since: workflow.Now(ctx)}
	defer t.end(now)
	limit := o.ScheduleToCloseTimeout
	for {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, p.limit(o)), activity, argument).Get(ctx, result)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if isType(err, activities.WorkerStopping) {
			continue
		}
		reason, isTriedOn := p.endSpell(err, at)
		if limit > 0 {
			o.ScheduleToCloseTimeout = now.Since.Add(limit).Sub(workflow.Now(ctx))
			isTriedOn = isTriedOn && o.ScheduleToCloseTimeout > 0
		}
		if !isTriedOn {
			return err
		}
		t.show(ctx, now, activity, payload.Clip(reason, payload.MaxWhy))
	}
}

// show shows why something fails, and alerts a person the first time.
func (t *troubles) show(ctx workflow.Context, now *protocol.Trouble, activity, reason string) {
	isNew := now.Reason == ""
	now.Reason = reason
	if isNew {
		t.open = append(t.open, now)
	}
	if t.changed != nil {
		t.changed()
	}
	if isNew && t.alert != nil {
		t.alert(ctx, compensations.StepReport{Action: activity, State: string(protocol.Failing), Reason: now.What + ": " + reason})
	}
}

func (t *troubles) end(now *protocol.Trouble) {
	if now.Reason == "" {
		return
	}
	t.open = slices.DeleteFunc(t.open, func(o *protocol.Trouble) bool { return o == now })
	if t.changed != nil {
		t.changed()
	}
}

// views returns the troubles, with the undos that fail.
func (t *troubles) views(saga *compensations.Saga) []protocol.Trouble {
	var views []protocol.Trouble
	for _, o := range t.open {
		views = append(views, *o)
	}
	if saga != nil {
		for _, u := range saga.Failing(maxTroubles) {
			views = append(views, protocol.Trouble{What: "undo " + u.Step, Step: u.Step, Reason: u.Reason})
		}
	}
	return views[:min(len(views), maxTroubles)]
}

// shownTroubles are what the task tries without success: what holds it up first.
func (t *agentTask) shownTroubles() []protocol.Trouble {
	return append(t.troubles.views(t.saga), t.alerts.troubles()...)
}

// describeTroubles writes troubles for the Temporal UI, as Markdown.
func describeTroubles(all []protocol.Trouble) string {
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "- trouble: %s: %s\n", escapeCell(o.What), escapeCell(o.Reason))
	}
	return b.String()
}
