package workflows

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// shownSteps bounds the table in the Temporal UI: all that waits for a person, and the last of the rest.
const shownSteps = 50

// maxViewed bounds the steps in the answer to a query.
const maxViewed = 1000

func (t *agentTask) state(ctx workflow.Context) State {
	s := State{
		Task: workflow.GetInfo(ctx).WorkflowExecution.ID, Name: t.compiled.Name, Agent: t.compiled.Agent,
		Phase: t.phase, Cause: t.cause, Ignored: t.ignored, Report: t.report, Done: t.done, Total: t.size,
	}
	s.Steps = append(s.Steps, t.past[max(0, len(t.past)-maxViewed/2):]...)
	from, to := window(len(t.steps), t.frontier, maxViewed)
	for _, step := range t.steps[from:to] {
		s.Steps = append(s.Steps, step.view)
	}
	for _, step := range t.gates {
		if step.gate.decision == nil {
			s.Gates = append(s.Gates, step.gate.view)
		}
	}
	if t.report == nil && t.saga.Unwinding() {
		r := t.saga.Report()
		r.Fit(maxReport)
		s.Report = &r
	}
	return s
}

// show has the attendant write the current details anew, once for all that changes in one workflow task.
func (t *agentTask) show() { t.stale = true }

// writeDetails puts the ledger into the workflow's current details, as Markdown.
func (t *agentTask) writeDetails(ctx workflow.Context) {
	t.stale = false
	var b strings.Builder
	b.Grow(4 << 10)
	fmt.Fprintf(&b, "**%s**\n\n", t.headline())
	for _, s := range t.gates {
		if s.gate.decision == nil {
			writeGate(&b, s.gate.view)
		}
	}
	if t.saga.Unwinding() {
		t.writeUnwinding(&b)
	} else {
		t.writeForward(&b)
	}
	for _, why := range t.ignored[max(0, len(t.ignored)-5):] {
		fmt.Fprintf(&b, "- ignored signal: %s\n", cell(why))
	}
	b.WriteString("\n\u00a0\n\n\u00a0\n") // the UI clips the last row
	workflow.SetCurrentDetails(ctx, b.String())
}

func (t *agentTask) headline() string {
	switch {
	case t.report != nil && t.cause != nil:
		return fmt.Sprintf("%s (%s: %s)", t.report.Status, t.cause.Kind, cell(t.cause.Text))
	case t.report != nil:
		return string(t.report.Status)
	case t.saga.Unwinding():
		what := "rolling back a part"
		if t.cause != nil {
			what = fmt.Sprintf("unwinding (%s)", t.cause.Kind)
		}
		pending, parked := t.saga.Pending()
		if parked > 0 {
			return fmt.Sprintf("%s: %d to go, %d parked for a person", what, pending, parked)
		}
		return fmt.Sprintf("%s: %d to go", what, pending)
	}
	return fmt.Sprintf("%s: %d of %d steps done", t.phase, t.done, t.size)
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

func (t *agentTask) writeForward(b *strings.Builder) {
	if len(t.steps) == 0 {
		return
	}
	b.WriteString("| step | action | state | what |\n|---|---|---|---|\n")
	from, to := window(len(t.steps), t.frontier, shownSteps)
	if before := t.size - len(t.steps) + from; before > 0 {
		fmt.Fprintf(b, "| ... %d before | | | |\n", before)
	}
	for _, s := range t.steps[from:to] {
		if s.row == "" {
			text := s.view.Summary
			if s.view.Error != "" {
				text = s.view.Error
			}
			s.row = fmt.Sprintf("| %s | %s | %s | %s |\n", s.step.ID, s.step.Uses, s.view.State, cell(text))
		}
		b.WriteString(s.row)
	}
	if to < len(t.steps) {
		fmt.Fprintf(b, "| ... %d more | | | |\n", len(t.steps)-to)
	}
}

// window is a stretch of room steps around the last one that has begun.
func window(n, frontier, room int) (from, to int) {
	to = min(n, frontier+room/5)
	from = max(0, to-room)
	return from, min(n, from+room)
}

func (t *agentTask) writeUnwinding(b *strings.Builder) {
	steps, parked := t.saga.Recent(shownSteps)
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
	for _, s := range parked {
		writePark(b, s)
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
