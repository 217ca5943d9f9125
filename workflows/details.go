package workflows

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// shownSteps bounds what the Temporal UI shows: of what waits for a person the first, and of the rest the last.
const shownSteps = 50

// details are the task as the Temporal UI shows it: Markdown in the workflow's current details.
type details struct {
	stale bool // they are not what they should be
}

// markStale has the details written anew, once for all that changes in one workflow task.
func (d *details) markStale() { d.stale = true }

func (t *agentTask) writeDetails(ctx workflow.Context) {
	t.details.stale = false
	workflow.SetCurrentDetails(ctx, renderDetails(t.headline(), t.gates.views(), t.schedule, t.saga, t.inbox.Ignored().Reasons))
}

func (t *agentTask) headline() string {
	cause := t.ending.cause
	switch {
	case t.report != nil && cause != nil:
		return fmt.Sprintf("%s (%s: %s)", t.report.Status, cause.Kind, cell(cause.Text))
	case t.report != nil:
		return string(t.report.Status)
	case t.saga.Unwinding():
		what := "rolling back a part"
		if cause != nil {
			what = fmt.Sprintf("unwinding (%s)", cause.Kind)
		}
		pending, parked := t.saga.Pending()
		if parked > 0 {
			return fmt.Sprintf("%s: %d to go, %d parked for a person", what, pending, parked)
		}
		return fmt.Sprintf("%s: %d to go", what, pending)
	}
	return fmt.Sprintf("%s: %d of %d steps done", t.phase, t.schedule.done, t.schedule.size)
}

func renderDetails(headline string, gates []GateView, c *schedule, saga *compensations.Saga, ignored []string) string {
	var b strings.Builder
	b.Grow(4 << 10)
	fmt.Fprintf(&b, "**%s**\n\n", headline)
	for _, g := range gates {
		writeGate(&b, g)
	}
	if saga.Unwinding() {
		writeUndos(&b, saga)
	} else {
		writeSteps(&b, c)
	}
	for _, why := range ignored[max(0, len(ignored)-5):] {
		fmt.Fprintf(&b, "- ignored signal: %s\n", cell(why))
	}
	b.WriteString("\n\u00a0\n\n\u00a0\n") // the UI clips the last row
	return b.String()
}

func writeGate(b *strings.Builder, g GateView) {
	payload, _ := json.MarshalIndent(Decision{Step: g.Step, Digest: g.Digest}, "", "  ")
	fmt.Fprintf(b, "### Gate: step `%s` waits for approval\n\n%s. Risk: %s. Undo: %s\n\n", g.Step, cell(g.Change.Summary), g.Change.Risk, cell(g.Change.Undo))
	if g.Change.Diff != "" {
		fmt.Fprintf(b, "```diff\n%s\n```\n\n", strings.ReplaceAll(clip(g.Change.Diff, 4000), "```", "'''"))
	}
	for _, loss := range g.Change.Losses {
		fmt.Fprintf(b, "- an undo does not bring back: %s\n", cell(loss))
	}
	fmt.Fprintf(b, "\nSend the signal `%s` or `%s` with\n\n```json\n%s\n```\n\n", SignalApprove, SignalReject, payload)
}

func writeSteps(b *strings.Builder, c *schedule) {
	if len(c.steps) == 0 {
		return
	}
	b.WriteString("| step | action | state | what |\n|---|---|---|---|\n")
	from, to := window(len(c.steps), c.latest, shownSteps)
	if before := c.size - len(c.steps) + from; before > 0 {
		fmt.Fprintf(b, "| ... %d before | | | |\n", before)
	}
	for _, s := range c.steps[from:to] {
		if s.row == "" {
			text := s.view.Summary
			if s.view.Error != "" {
				text = s.view.Error
			}
			s.row = fmt.Sprintf("| %s | %s | %s | %s |\n", s.step.ID, s.step.Uses, s.view.State, cell(text))
		}
		b.WriteString(s.row)
	}
	if to < len(c.steps) {
		fmt.Fprintf(b, "| ... %d more | | | |\n", len(c.steps)-to)
	}
}

// window is a stretch of so many of n steps around the last one that has started.
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
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", s.Step, s.Action, state, cell(text))
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
	payload, _ := json.MarshalIndent(compensations.Resolution{Step: s.Step, Digest: s.Digest, Do: compensations.Retry}, "", "  ")
	fmt.Fprintf(b, "### Parked: the undo of step `%s` needs a person\n\n%s\n\n", s.Step, cell(s.Reason))
	if s.Drift != nil && s.Drift.Diff != "" {
		fmt.Fprintf(b, "```diff\n%s\n```\n\n", strings.ReplaceAll(clip(s.Drift.Diff, 4000), "```", "'''"))
	}
	fmt.Fprintf(b, "Send the signal `%s` (do: %s) with\n\n```json\n%s\n```\n\n", compensations.SignalResolve, ways, payload)
}

var oneCell = strings.NewReplacer("|", "\\|", "\n", " ", "\r", "")

// cell makes a text fit into one cell of a Markdown table.
func cell(s string) string { return oneCell.Replace(clip(s, 300)) }
