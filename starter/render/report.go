package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var headlines = map[compensations.Status]string{
	compensations.Open:      "open: it has not ended yet",
	compensations.Committed: "committed: every step is done and stays",
	compensations.Unwound:   "unwound: every step that acted was undone",
	compensations.Remains:   "unwound with remains: what is marked ! is not as it was before",
	compensations.Partly:    "committed in part: what is marked ! was skipped or undone, everything else stays",
	compensations.Redone:    "redone: what was rolled back is back in place",
}

// Report prints what became of a task.
func Report(w io.Writer, r compensations.Report) {
	headline := headlines[r.Status]
	switch {
	case headline == "":
		headline = string(r.Status)
	case r.Status == compensations.Committed &&
		slices.ContainsFunc(r.Steps, func(s compensations.StepReport) bool { return s.Outcome != "" }):
		headline = "committed: what was not undone on the way stays"
	}
	fmt.Fprintf(w, "report of %s\n%s\n", r.Task, headline)
	if r.Cause != nil {
		fmt.Fprintf(w, "cause: %s\n", Cause(*r.Cause))
		writeRest(w, r.Cause.Text)
	}
	if r.Lasted > 0 {
		fmt.Fprintf(w, "lasted: %s\n", terminal.Duration(r.Lasted))
	}
	if r.Status == compensations.Committed || r.Status == compensations.Redone {
		writeCommitted(w, r)
	} else {
		writeUnwound(w, r)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
		for _, note := range r.Notes {
			fmt.Fprintf(w, "note: %s\n", terminal.OneLine(note))
		}
	}
}

// Cause is why a task unwound, in one line.
func Cause(c compensations.Cause) string {
	c.Text = Reason(c.Text)
	return c.String()
}

// Reason is the first line of an error, in words that need no knowledge of Temporal. What follows
// it is output.
func Reason(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return Note(first)
}

// Note is a note in a line, in words that need no knowledge of Temporal.
func Note(text string) string { return terminal.OneLine(timeouts.Replace(text)) }

// timeouts are Temporal's names for what has timed out, in words.
var timeouts = strings.NewReplacer(
	"timed out (StartToClose)", "timed out: an attempt took longer than its limit",
	"timed out (ScheduleToClose)", "timed out: it was not done within its limit for all attempts",
	"timed out (ScheduleToStart)", "timed out: no worker took it",
	"timed out (Heartbeat)", "timed out: its worker was no longer heard from",
)

// writeRest prints the lines of an error after its first: what a command or a check printed.
func writeRest(w io.Writer, text string) {
	if _, rest, more := strings.Cut(strings.TrimSpace(text), "\n"); more {
		fmt.Fprintln(w, terminal.Indent("  | ", rest))
	}
}

// stepName is a step in a table, with the number of its try where it has several rows.
func stepName(s compensations.StepReport) string {
	if s.Try > 0 {
		return fmt.Sprintf("%s (try %d)", s.Step, s.Try)
	}
	return s.Step
}

func writeCommitted(w io.Writer, r compensations.Report) {
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := terminal.Table{}
	t.Row("STEP", "ACTION", "TOOK", "WHAT IT DID")
	for _, s := range r.Steps {
		did := s.Summary
		if s.Outcome != "" {
			did = "undone: " + strings.TrimSuffix(string(s.Outcome)+": "+s.Observed, ": ")
		}
		t.Row(stepName(s), s.Action, terminal.Duration(s.Took), terminal.OneLine(did))
	}
	t.Write(w)
	writeRemarks(w, r)
}

func writeUnwound(w io.Writer, r compensations.Report) {
	if len(r.Steps) > 0 {
		fmt.Fprintln(w)
		t := terminal.Table{}
		t.Row(" ", "STEP", "ACTION", "UNDO", "TOOK", "SEEN AFTERWARDS")
		for _, s := range r.Steps {
			undo, seen := undoText(s, r), s.Observed
			if undo == staysText || undo == failedText {
				seen = s.Summary
			}
			if strings.Contains(s.Reason, seen) {
				seen = s.Reason
			} else if s.Reason != "" {
				seen = s.Reason + "; " + seen
			}
			spent := ""
			if s.Took > 0 && s.Outcome != "" {
				spent = terminal.Duration(s.Took)
			}
			t.Row(marker(s, r), stepName(s), s.Action, undo, spent, Reason(seen))
		}
		t.Write(w)
	}
	if len(r.Outcomes) > 0 {
		var counts []string
		for _, outcome := range slices.Sorted(maps.Keys(r.Outcomes)) {
			counts = append(counts, fmt.Sprintf("%d %s", r.Outcomes[outcome], outcome))
		}
		fmt.Fprintf(w, "\ntotal: %s\n", strings.Join(counts, ", "))
	}
	writeRemarks(w, r)
}

// marker is ! for a step that is not as it was before, or that waits for a person; in a task that
// committed in part, for one that is not done.
func marker(s compensations.StepReport, r compensations.Report) string {
	if r.Status == compensations.Partly {
		if undoText(s, r) == staysText {
			return " "
		}
		return "!"
	}
	switch compensations.UndoState(s.State) {
	case compensations.Settled, compensations.Parked, compensations.Accepted, compensations.Skipped:
		if !s.Clean() {
			return "!"
		}
	}
	return " "
}

// What is printed for a step that is done, and for one that has failed while the task went on;
// neither is undone.
const (
	staysText  = "stays"
	failedText = "failed, not undone"
)

func undoText(s compensations.StepReport, r compensations.Report) string {
	switch state := protocol.StepState(s.State); {
	case state == protocol.NotStarted:
		return "never ran"
	case state == protocol.Done:
		return staysText
	case state == protocol.StepFailed && r.Cause == nil: // the task went on without undoing it
		return failedText
	case !tasks.Registered(s):
		return "never acted"
	case s.Outcome == "":
		return s.State
	case compensations.UndoState(s.State) == compensations.Settled:
		return string(s.Outcome)
	}
	return s.State + ", " + string(s.Outcome)
}

// writeRemarks prints what does not fit into a row: losses, notes and drift.
func writeRemarks(w io.Writer, r compensations.Report) {
	first := true
	say := func(format string, args ...any) {
		if first {
			fmt.Fprintln(w)
			first = false
		}
		fmt.Fprintf(w, format+"\n", args...)
	}
	for _, loss := range groupLosses(r.Steps) {
		say("%s: not restored: %s", strings.Join(loss.steps, ", "), terminal.OneLine(loss.what))
	}
	for _, s := range r.Steps {
		for _, note := range s.Notes {
			say("%s: %s", stepName(s), Note(note))
		}
		if s.Drift != nil && s.Drift.Diff != "" && compensations.UndoState(s.State) != compensations.Parked { // Park shows it
			what := "drift"
			if compensations.UndoState(s.State) == compensations.Settled {
				what = "drift that was overwritten"
			}
			say("%s: %s:\n%s", stepName(s), what, terminal.Indent("  | ", s.Drift.Diff))
		}
	}
}

// loss is what undos have not brought back, and the steps that it holds for.
type loss struct {
	what  string
	steps []string
}

// groupLosses lists each loss once, in the order of the steps.
func groupLosses(steps []compensations.StepReport) []loss {
	var all []loss
	for _, s := range steps {
		for _, what := range s.Losses {
			i := slices.IndexFunc(all, func(l loss) bool { return l.what == what })
			if i < 0 {
				i = len(all)
				all = append(all, loss{what: what})
			}
			if !slices.Contains(all[i].steps, stepName(s)) {
				all[i].steps = append(all[i].steps, stepName(s))
			}
		}
	}
	return all
}
