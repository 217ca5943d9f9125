package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// listWidth is how wide a list of tasks may be.
const listWidth = 120

// Tasks prints a list of tasks.
func Tasks(w io.Writer, list []tasks.Listed) {
	t := terminal.Table{Width: listWidth, Least: []int{20, 10, 28, 18, 8}} // which leaves enough for the other columns
	t.Row("TASK", "NAME", "STATUS", "WAITS FOR", "AGENT", "STARTED", "LASTED")
	for _, e := range list {
		spent := ""
		if !e.Closed.IsZero() {
			spent = terminal.Duration(e.Closed.Sub(e.Started))
		}
		t.Row(terminal.OneLine(listedTask(e)), terminal.OneLine(e.Name), listedStatus(e), terminal.OneLine(waitsFor(e)),
			terminal.OneLine(e.Agent),
			terminal.LocalTime(e.Started, "2006-01-02 15:04"), spent)
	}
	t.Write(w)
}

// nouns say what a workflow that acts on a task is.
var nouns = map[string]string{
	protocol.RecoverType: "recovery", protocol.RollbackType: "rollback", protocol.RedoType: "redo",
	protocol.LateSweepType: "late sweep",
}

// listedTask is the id of a task, or what was done about which task: the id of that is too long for
// a list.
func listedTask(e tasks.Listed) string {
	noun := nouns[e.Type]
	if noun == "" || e.Task == "" {
		return e.ID
	}
	return strings.TrimSpace(noun + " of " + e.Task + " " + e.Part)
}

// listedStatus is the task's status, with the way its run ended if the server ended it, and what
// became of it since.
func listedStatus(e tasks.Listed) string {
	parts := []string{e.Status}
	if e.Status == "" {
		parts[0] = "?"
	}
	if e.Paused {
		parts = append(parts, "paused")
	}
	for _, more := range []string{e.Ended, e.Now} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(append(parts, takenBackIn(e.TakenBack)...), ", ")
}

// takenBackIn says which environments have taken back what a task had changed.
func takenBackIn(all []environment.TakenBack) (parts []string) {
	for _, t := range all {
		parts = append(parts, "taken back in environment "+t.Environment)
	}
	return slices.Compact(parts)
}

// waitsFor says what a task waits for, a person first.
func waitsFor(e tasks.Listed) string {
	var person []string
	for _, of := range []struct {
		what, step string
		count      int
	}{{"gate of ", e.Gate, e.Gates}, {"parked: ", e.Parked, e.Parks}} {
		if of.step == "" {
			continue
		}
		what := of.what + of.step
		if of.count > 1 {
			what = fmt.Sprintf("%s and %d more", what, of.count-1)
		}
		person = append(person, what)
	}
	if e.Stuck {
		person = append(person, "it is stuck")
	}
	switch {
	case len(person) > 0:
		return strings.Join(person, "; ")
	case e.Failing != "":
		return "failing: " + e.Failing
	case len(e.AwaitedHosts) > 0:
		return "worker of host " + strings.Join(e.AwaitedHosts, ", ")
	case e.Pending > 0:
		return terminal.Plural(e.Pending, "undo")
	}
	return ""
}
