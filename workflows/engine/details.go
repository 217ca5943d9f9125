package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/calls"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// shownSteps bounds what the Temporal UI shows: the first undos that wait for a person, and the
// last of everything else.
const shownSteps = 50

func (t *Task) writeDetails(ctx workflow.Context) {
	t.details.stale = false
	t.attributes.publishParked(ctx, cmp.Or(t.Saga.FirstParked(), t.Parks.first(), t.stuckMark()))
	info := workflow.GetInfo(ctx)
	about := protocol.AllAbout(info.Namespace, servedTask(ctx))
	troubles := t.shownTroubles()
	t.attributes.publishFailing(ctx, troubles)
	workflow.SetCurrentDetails(ctx,
		renderDetails(t.headline(), troubles, t.Gates.Views(), t.Parks.Views(), t.Schedule, t.Saga, t.Inbox.Ignored().Reasons,
			about))
}

// servedTask is the id of the task that a workflow serves; of a task its own.
func servedTask(ctx workflow.Context) string {
	if task, serves := workflow.GetTypedSearchAttributes(ctx).GetKeyword(protocol.AttributeTask); serves {
		return task
	}
	return workflow.GetInfo(ctx).WorkflowExecution.ID
}

func (t *Task) headline() string {
	cause := t.Ending.Cause
	switch {
	case t.Report != nil && cause != nil:
		return fmt.Sprintf("%s (%s)", t.Report.Status, payload.Cell(cause.String()))
	case t.Report != nil:
		return string(t.Report.Status)
	case t.Saga.Unwinding():
		what := "rolling back a part"
		if cause != nil {
			what = fmt.Sprintf("unwinding (%s)", cause.Kind)
		}
		pending, parked := t.Saga.Pending()
		if parked > 0 {
			return fmt.Sprintf("%s: %d to go, %d parked for a person", what, pending, parked)
		}
		return fmt.Sprintf("%s: %d to go", what, pending)
	}
	if t.executor.stuck != "" {
		return "stuck: " + payload.Cell(t.executor.stuck)
	}
	return fmt.Sprintf("%s: %d of %s done", t.Phase, t.Schedule.done, activities.CountOf(t.Schedule.Size, "step"))
}

func renderDetails(headline string, troubles []protocol.Trouble, gates []protocol.GateView, parks []protocol.ParkView,
	c *schedule, saga *compensations.Saga, ignored []string, about string) string {
	var b strings.Builder
	b.Grow(4 << 10)
	fmt.Fprintf(&b, "**%s** · %s\n\n", headline, about)
	if len(troubles) > 0 {
		b.WriteString(calls.DescribeTroubles(troubles) + "\n")
	}
	width := shownSteps
	if len(gates)+len(parks) > 0 {
		width = gateSteps
	}
	for i, g := range gates[:min(shownSteps, len(gates))] {
		writeGate(&b, g, i == 0)
	}
	if more := len(gates) - shownSteps; more > 0 {
		fmt.Fprintf(&b, "also wait for approval: %s; `starter approve TASK STEP` shows each\n\n",
			activities.CountOf(more, "step"))
	}
	for _, p := range parks[:min(shownSteps, len(parks))] {
		writeParkedStep(&b, p)
	}
	if more := len(parks) - shownSteps; more > 0 {
		fmt.Fprintf(&b, "also wait after a failure: %s; `starter show` lists the first\n\n", activities.CountOf(more, "step"))
	}
	if saga.Unwinding() {
		writeUndos(&b, saga)
	} else {
		writeSteps(&b, c, width)
	}
	for _, why := range ignored[max(0, len(ignored)-5):] {
		fmt.Fprintf(&b, "- ignored signal: %s\n", payload.Cell(why))
	}
	b.WriteString("\n\u00a0\n\n\u00a0\n") // the UI clips the last row
	return activities.Visible(b.String())
}

// What the details show of a gate, so that they fit one screen: lines of its diff, losses, and
// steps below it.
const (
	gateDiffLines = 10
	gateDiffBytes = 1500
	parkDiffBytes = 4000
	gateLosses    = 3
	gateSteps     = 10
)

// writeGate writes what a person must know and copy first. Of gates after the first it writes no
// more than that.
func writeGate(b *strings.Builder, g protocol.GateView, whole bool) {
	signal, _ := json.MarshalIndent(protocol.Decision{Step: g.Step, Digest: g.Digest}, "", "  ")
	fmt.Fprintf(b, "### Gate: step `%s` waits for approval\n\n%s. Risk: %s. Undo: %s", g.Step,
		payload.Cell(g.Change.Summary), g.Change.Risk, payload.Cell(g.Change.Undo))
	if g.Change.Horizon > 0 {
		fmt.Fprintf(b, ", for %s after the end of the task", g.Change.Horizon)
	}
	b.WriteString("\n\n")
	if g.Waits != "" {
		fmt.Fprintf(b, "Approvals: %s\n\n", payload.Cell(g.Waits))
	}
	if g.Signed {
		b.WriteString("Only signed decisions count: use `starter approve` or `starter reject`\n\n")
	} else {
		fmt.Fprintf(b, "Send the signal `%s` or `%s` with\n\n```json\n%s\n```\n\n", protocol.SignalApprove,
			protocol.SignalReject, signal)
	}
	if !whole {
		return
	}
	for _, loss := range g.Change.Losses[:min(len(g.Change.Losses), gateLosses)] {
		fmt.Fprintf(b, "- an undo does not bring back: %s\n", payload.Cell(loss))
	}
	more := max(0, len(g.Change.Losses)-gateLosses)
	if more > 0 {
		fmt.Fprintf(b, "- ... %d more\n", more)
	}
	if g.Change.Diff != "" {
		diff, missing := headLines(activities.HeadDiff(g.Change.Diff, gateDiffBytes), gateDiffLines)
		fmt.Fprintf(b, "\n```diff\n%s\n```\n\n", strings.ReplaceAll(diff, "```", "'''"))
		if missing || len(g.Change.Diff) > gateDiffBytes {
			b.WriteString(wholeElsewhere)
		}
	}
}

// wholeElsewhere follows a diff of which not all is shown.
const wholeElsewhere = "`starter show` and the query `state` have all of it.\n\n"

// headLines returns at most n lines of a text, and whether there are more.
func headLines(s string, n int) (string, bool) {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[:min(len(lines), n)], "\n"), len(lines) > n
}

func writeSteps(b *strings.Builder, c *schedule, width int) {
	if len(c.Steps) == 0 {
		return
	}
	b.WriteString("| step | action | state | what |\n|---|---|---|---|\n")
	from, to := window(len(c.Steps), c.latest, width)
	if before := c.Size - len(c.Steps) + from; before > 0 {
		fmt.Fprintf(b, "| ... %d before | | | |\n", before)
	}
	for _, s := range c.Steps[from:to] {
		if s.row == "" {
			text := s.View.Summary
			switch {
			case s.View.Error != "":
				text = s.View.Error
			case s.View.Waiting != "":
				text = s.View.Waiting
			}
			s.row = fmt.Sprintf("| %s | %s | %s | %s |\n", s.Step.ID, s.Step.Uses, s.View.State, payload.Cell(text))
		}
		b.WriteString(s.row)
	}
	if to < len(c.Steps) {
		fmt.Fprintf(b, "| ... %d more | | | |\n", len(c.Steps)-to)
	}
}

// window returns a range of at most width of n steps, around the latest one that has started.
func window(n, latest, width int) (from, to int) {
	to = min(n, latest+width/5)
	from = max(0, to-width)
	return from, min(n, from+width)
}

func writeUndos(b *strings.Builder, saga *compensations.Saga) {
	steps, parked := saga.Recent(shownSteps)
	b.WriteString("| step | action | undo | observed |\n|---|---|---|---|\n")
	for _, s := range steps {
		text, state := s.Observed, s.State
		switch {
		case compensations.UndoState(s.State) == compensations.Settled:
			state = string(s.Outcome)
		case s.Outcome != "":
			state += ", " + string(s.Outcome)
		}
		if s.Reason != "" {
			text = s.Reason
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", s.Step, s.Action, state, payload.Cell(text))
	}
	b.WriteString("\n")
	for _, s := range parked[:min(shownSteps, len(parked))] {
		writePark(b, s)
	}
	if more := len(parked) - shownSteps; more > 0 {
		fmt.Fprintf(b, "%d more are parked: `starter show` lists them\n", more)
	}
}

func writePark(b *strings.Builder, s compensations.StepReport) {
	ways := "retry, skip, accept"
	if s.Outcome == activities.Drifted {
		ways = "retry, force, skip, accept"
	}
	signal, _ := json.MarshalIndent(compensations.Resolution{Step: s.Step, Digest: s.Digest, Do: compensations.Retry}, "",
		"  ")
	fmt.Fprintf(b, "### Parked: the undo of step `%s` needs a person\n\n%s\n\n", s.Step, payload.Cell(s.Reason))
	if s.Drift != nil && s.Drift.Diff != "" {
		fmt.Fprintf(b, "```diff\n%s\n```\n\n",
			strings.ReplaceAll(activities.HeadDiff(s.Drift.Diff, parkDiffBytes), "```", "'''"))
	}
	if s.Drift != nil && len(s.Drift.Diff) > parkDiffBytes {
		b.WriteString(wholeElsewhere)
	}
	if s.Signed {
		fmt.Fprintf(b, onlySigned, ways)
		return
	}
	fmt.Fprintf(b, "Send the signal `%s` (do: %s) with\n\n```json\n%s\n```\n\n", compensations.SignalResolve, ways, signal)
}

const onlySigned = "Only signed decisions count: use `starter resolve` (do: %s)\n\n"

func writeParkedStep(b *strings.Builder, p protocol.ParkView) {
	var ways []string
	for _, do := range p.Ways {
		ways = append(ways, string(do))
	}
	signal, _ := json.MarshalIndent(protocol.Resolution{Resolution: compensations.Resolution{Step: p.Step,
		Digest: p.Digest, Do: p.Ways[0]}}, "", "  ")
	fmt.Fprintf(b, "### Parked: step `%s` failed and needs a person\n\n%s\n\n", p.Step, payload.Cell(p.Reason))
	if p.Signed {
		fmt.Fprintf(b, onlySigned, strings.Join(ways, ", "))
		return
	}
	fmt.Fprintf(b, "Send the signal `%s` (do: %s; retry may give other parameters as `with`) with\n\n```json\n%s\n```\n\n",
		compensations.SignalResolve, strings.Join(ways, ", "), signal)
}
