package render

import (
	"io"
	"strings"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
)

// Tasks prints a list of tasks.
func Tasks(w io.Writer, list []tasks.Listed) {
	t := terminal.Table{}
	t.Row("ID", "NAME", "STATUS", "WAITS FOR", "AGENT", "STARTED", "TOOK", "BY")
	for _, e := range list {
		spent := ""
		if !e.Closed.IsZero() {
			spent = terminal.Duration(e.Closed.Sub(e.Started))
		}
		t.Row(e.ID, terminal.Clip(terminal.OneLine(e.Name), maxListedName), listedStatus(e), waitsFor(e), e.Agent, terminal.LocalTime(e.Started, "2006-01-02 15:04:05"), spent, e.By)
	}
	t.Write(w)
}

// maxListedName is how much of a task's name a list shows, in characters.
const maxListedName = 30

// listedStatus is the task's status, with the way its run ended if the server ended it, and what became of it since.
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
	return strings.Join(parts, ", ")
}

func waitsFor(e tasks.Listed) string {
	switch {
	case e.Gate != "":
		return "gate of " + e.Gate
	case e.Parked != "":
		return "parked: " + e.Parked
	case e.Failing != "":
		return "failing: " + terminal.OneLine(e.Failing)
	case len(e.AwaitedHosts) > 0:
		return "worker of host " + terminal.OneLine(strings.Join(e.AwaitedHosts, ", "))
	case e.Pending > 0:
		return terminal.Plural(e.Pending, "undo")
	}
	return ""
}
