package calls

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

// Troubles are those of one workflow, the oldest first. The zero value keeps them to itself.
type Troubles struct {
	open    []*protocol.Trouble
	Changed func()
	Alert   func(workflow.Context, compensations.StepReport)
}

// persist runs an activity until it succeeds, fails for good, is canceled, or has used up its
// ScheduleToCloseTimeout, if it has one. What fails for minutes is shown, and alerts a person.
func (t *Troubles) persist(ctx workflow.Context, o workflow.ActivityOptions, at activities.Place, wait time.Duration,
	activity string, argument, result any) error {
	p := NewPatience(wait)
	now := &protocol.Trouble{What: o.Summary, Since: workflow.Now(ctx)}
	defer t.end(now)
	limit := o.ScheduleToCloseTimeout
	for {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, p.Limit(o)), activity, argument).Get(ctx, result)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if IsType(err, activities.WorkerStopping) {
			continue
		}
		reason, isTriedOn := p.EndSpell(err, at)
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
func (t *Troubles) show(ctx workflow.Context, now *protocol.Trouble, activity, reason string) {
	isNew := now.Reason == ""
	now.Reason = reason
	if isNew {
		t.open = append(t.open, now)
	}
	if t.Changed != nil {
		t.Changed()
	}
	if isNew && t.Alert != nil {
		t.Alert(ctx,
			compensations.StepReport{Action: activity, State: string(protocol.Failing), Reason: now.What + ": " + reason})
	}
}

func (t *Troubles) end(now *protocol.Trouble) {
	if now.Reason == "" {
		return
	}
	t.open = slices.DeleteFunc(t.open, func(o *protocol.Trouble) bool { return o == now })
	if t.Changed != nil {
		t.Changed()
	}
}

// Views returns the troubles, with the undos that fail.
func (t *Troubles) Views(saga *compensations.Saga) []protocol.Trouble {
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

// DescribeTroubles writes troubles for the Temporal UI, as Markdown.
func DescribeTroubles(all []protocol.Trouble) string {
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "- trouble: %s: %s\n", payload.Cell(o.What), payload.Cell(o.Reason))
	}
	return b.String()
}
