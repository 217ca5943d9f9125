package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// Trouble is what was tried without success, and is tried on.
type Trouble struct {
	What string `json:"what"`
	// Step is the one that it is about; empty where it is about several, or about the task.
	Step string `json:"step,omitempty"`
	// Attempt is the number of the attempt that is under way or comes next. No workflow knows it.
	Attempt int `json:"attempt,omitempty"`
	// Reason is why it failed last.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
}

// Failing is the state in an Alert about a Trouble.
const Failing compensations.UndoState = "failing"

// maxTroubles is how many troubles are shown.
const maxTroubles = 20

// troubles are those of one workflow, the oldest first. The zero value keeps them to itself.
type troubles struct {
	open    []*Trouble
	changed func()
	alert   func(workflow.Context, compensations.StepReport)
}

// persist runs an activity until it succeeds, fails for good, is canceled, or has used up its ScheduleToCloseTimeout, if it has one. What
// fails for minutes is shown, and alerts a person.
func (t *troubles) persist(ctx workflow.Context, o workflow.ActivityOptions, at activities.Place, wait time.Duration, activity string, argument, result any) error {
	p := newPatience(wait)
	now := &Trouble{What: o.Summary, Since: workflow.Now(ctx)}
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
		t.show(ctx, now, activity, clip(reason, maxWhy))
	}
}

// show shows why something fails, and alerts a person the first time.
func (t *troubles) show(ctx workflow.Context, now *Trouble, activity, reason string) {
	isNew := now.Reason == ""
	now.Reason = reason
	if isNew {
		t.open = append(t.open, now)
	}
	if t.changed != nil {
		t.changed()
	}
	if isNew && t.alert != nil {
		t.alert(ctx, compensations.StepReport{Action: activity, State: string(Failing), Reason: now.What + ": " + reason})
	}
}

func (t *troubles) end(now *Trouble) {
	if now.Reason == "" {
		return
	}
	t.open = slices.DeleteFunc(t.open, func(o *Trouble) bool { return o == now })
	if t.changed != nil {
		t.changed()
	}
}

// views returns the troubles, with the undos that fail.
func (t *troubles) views(saga *compensations.Saga) []Trouble {
	var views []Trouble
	for _, o := range t.open {
		views = append(views, *o)
	}
	if saga != nil {
		for _, u := range saga.Failing(maxTroubles) {
			views = append(views, Trouble{What: "undo " + u.Step, Step: u.Step, Reason: u.Reason})
		}
	}
	return views[:min(len(views), maxTroubles)]
}

// shownTroubles are what the task tries without success: what holds it up first.
func (t *agentTask) shownTroubles() []Trouble {
	return append(t.troubles.views(t.saga), t.alerts.troubles()...)
}

// describeTroubles writes troubles for the Temporal UI, as Markdown.
func describeTroubles(all []Trouble) string {
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "- trouble: %s: %s\n", escapeCell(o.What), escapeCell(o.Reason))
	}
	return b.String()
}
