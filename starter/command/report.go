package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

var headlines = map[compensations.Status]string{
	compensations.Open:      "open: not at its end yet",
	compensations.Committed: "committed: every step is done and stays",
	compensations.Unwound:   "unwound: every step that acted was taken back",
	compensations.Remains:   "unwound with remains: what is marked ! is not as it was before",
	compensations.Partly:    "committed in part: what is marked ! was left out or taken back, all else stays",
	compensations.Redone:    "redone: what was rolled back is there again",
}

// writeReport prints what became of a task.
func writeReport(w io.Writer, r compensations.Report) {
	headline := headlines[r.Status]
	if headline == "" {
		headline = string(r.Status)
	}
	fmt.Fprintf(w, "report of %s\n%s\n", r.Task, headline)
	if r.Cause != nil {
		fmt.Fprintf(w, "cause: %s\n", causeText(*r.Cause))
	}
	if r.Took > 0 {
		fmt.Fprintf(w, "took:  %s\n", took(r.Took))
	}
	if r.Status == compensations.Committed {
		writeCommitted(w, r)
	} else {
		writeUnwound(w, r)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
		for _, note := range r.Notes {
			fmt.Fprintf(w, "note: %s\n", oneLine(note))
		}
	}
}

func causeText(c compensations.Cause) string {
	text := string(c.Kind)
	if c.Step != "" {
		text += " at step " + c.Step
	}
	if c.Text != "" {
		text += ": " + oneLine(c.Text)
	}
	return text
}

func writeCommitted(w io.Writer, r compensations.Report) {
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{}
	t.row("STEP", "ACTION", "TOOK", "WHAT IT DID")
	for _, s := range r.Steps {
		t.row(s.Step, s.Action, took(s.Took), oneLine(s.Summary))
	}
	t.write(w)
	writeRemarks(w, r)
}

func writeUnwound(w io.Writer, r compensations.Report) {
	if len(r.Steps) > 0 {
		fmt.Fprintln(w)
		t := table{}
		t.row(" ", "STEP", "ACTION", "UNDO", "TOOK", "SEEN AFTERWARDS")
		for _, s := range r.Steps {
			undo, seen := undoText(s), s.Observed
			if strings.Contains(s.Reason, seen) {
				seen = s.Reason
			} else if s.Reason != "" {
				seen = s.Reason + "; " + seen
			}
			spent := ""
			if s.Took > 0 && s.Outcome != "" {
				spent = took(s.Took)
			}
			t.row(mark(s), s.Step, s.Action, undo, spent, oneLine(seen))
		}
		t.write(w)
	}
	if len(r.Outcomes) > 0 {
		var counts []string
		for _, outcome := range slices.Sorted(maps.Keys(r.Outcomes)) {
			counts = append(counts, fmt.Sprintf("%d %s", r.Outcomes[outcome], outcome))
		}
		fmt.Fprintf(w, "\nin all: %s\n", strings.Join(counts, ", "))
	}
	writeRemarks(w, r)
}

// registered says that a step came to the ledger. Of one that did not, the report tells how far it came forward.
func registered(s compensations.StepReport) bool {
	switch workflows.StepState(s.State) {
	case workflows.NotStarted, workflows.Planning, workflows.AtGate, workflows.Running, workflows.Done, workflows.StepFailed, workflows.Canceled:
		return false
	}
	return true
}

// mark is ! for what is not as it was before, or waits for a person.
func mark(s compensations.StepReport) string {
	switch compensations.UndoState(s.State) {
	case compensations.Settled, compensations.Parked, compensations.Accepted, compensations.Skipped:
		if !s.Clean() {
			return "!"
		}
	}
	return " "
}

func undoText(s compensations.StepReport) string {
	switch {
	case workflows.StepState(s.State) == workflows.NotStarted:
		return "never ran"
	case !registered(s):
		return "never acted"
	case s.Outcome == "":
		return s.State
	case compensations.UndoState(s.State) == compensations.Settled:
		return string(s.Outcome)
	}
	return s.State + ", " + string(s.Outcome)
}

// writeRemarks tells what does not fit into a row.
func writeRemarks(w io.Writer, r compensations.Report) {
	first := true
	say := func(format string, args ...any) {
		if first {
			fmt.Fprintln(w)
			first = false
		}
		fmt.Fprintf(w, format+"\n", args...)
	}
	for _, s := range r.Steps {
		for _, loss := range s.Losses {
			say("%s: did not come back: %s", s.Step, oneLine(loss))
		}
		for _, note := range s.Notes {
			say("%s: %s", s.Step, oneLine(note))
		}
		if s.Drift != nil && s.Drift.Diff != "" {
			say("%s: the drift that was seen:\n%s", s.Step, indented("  | ", s.Drift.Diff))
		}
	}
}
