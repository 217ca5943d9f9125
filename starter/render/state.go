package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Title is a task in one line.
func Title(t tasks.Run, s protocol.State) string {
	parts := []string{"task " + t.ID}
	if name := cmp.Or(s.Name, t.Name); name != "" {
		parts = append(parts, terminal.OneLine(name))
	}
	if agent := cmp.Or(t.Agent, s.Agent); agent != "" {
		parts = append(parts, "agent "+terminal.OneLine(agent))
	}
	return strings.Join(parts, " · ")
}

// Phase says what a task is doing, or how it ended.
func Phase(s protocol.State) string {
	if s.Phase == protocol.Closed && s.Report != nil {
		return string(s.Report.Status)
	}
	if s.Stuck != "" {
		return "stuck"
	}
	if len(s.Gates) > 0 {
		return "waits at a gate"
	}
	if len(s.Parks) > 0 {
		return "waits for a person"
	}
	if s.Phase == protocol.NotBegun {
		return "not begun: no worker has taken it yet"
	}
	if len(s.AwaitedHosts) > 0 {
		waits := "waits for a worker of host " + terminal.OneLine(strings.Join(s.AwaitedHosts, ", "))
		if s.Phase == protocol.Compiling {
			return waits
		}
		return string(s.Phase) + ", " + waits
	}
	return string(s.Phase)
}

// Trouble is what fails, in one line.
func Trouble(t protocol.Trouble) string {
	text := "trouble: " + terminal.OneLine(t.What)
	if t.Attempt > 0 {
		text += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	return text + ": " + Note(t.Reason)
}

// describeStanding says what a task is doing, whether it is paused, and what became of it since its
// end.
func describeStanding(s tasks.Standing) string {
	parts := []string{Phase(s.State)}
	if s.Paused != nil {
		parts = append(parts, "paused")
	}
	if s.Now != "" {
		parts = append(parts, s.Now)
	}
	return strings.Join(append(parts, takenBackIn(s.TakenBack)...), ", ")
}

// Standing prints a task as it stands now.
func Standing(w io.Writer, server tasks.Server, t tasks.Run, standing tasks.Standing) {
	s, source := standing.State, standing.Source
	fmt.Fprintf(w, "%s · %s\n", Title(t, s), describeStanding(standing))
	writeActs(w, t, standing)
	if link := server.RunLink(t.ID, t.RunID); link != "" {
		fmt.Fprintf(w, "see %s\n", link)
	}
	if source != "" {
		fmt.Fprintf(w, "%s\n", source)
	}
	for _, trouble := range s.Troubles {
		fmt.Fprintf(w, "%s\n", Trouble(trouble))
	}
	unwinding := s.Report != nil && s.Report.Status != compensations.Committed
	if len(s.Steps) > 0 && s.Phase != protocol.Closed || s.Report == nil && len(s.Steps) > 0 {
		fmt.Fprintln(w)
		writeSteps(w, s)
	}
	if s.Stuck != "" {
		fmt.Fprintf(w, "\nstuck: %s\n", terminal.OneLine(s.Stuck))
	}
	if s.Session != nil && s.Phase != protocol.Closed { // then the report has them
		writeSession(w, *s.Session)
	}
	writeWaiting(w, server, t, s)
	for _, what := range s.Omitted {
		fmt.Fprintf(w, "not shown, for it would be too long: %s\n", terminal.OneLine(what))
	}
	if s.Report != nil && (unwinding || s.Phase == protocol.Closed) {
		fmt.Fprintln(w)
		if standing.Now != "" {
			fmt.Fprintf(w, "as it was at its end; since then: %s\n", standing.Now)
		}
		Report(w, *s.Report)
		for _, r := range s.Report.Steps {
			if compensations.UndoState(r.State) == compensations.Parked && r.Digest != "" {
				fmt.Fprintln(w)
				Park(w, server, t.ID, r)
			}
		}
	}
	for _, why := range s.Ignored {
		if s.Phase != protocol.Closed { // then it is a note of the report
			fmt.Fprintf(w, "ignored signal: %s\n", terminal.OneLine(why))
		}
	}
}

// writeWaiting writes the steps that wait for a person.
func writeWaiting(w io.Writer, server tasks.Server, t tasks.Run, s protocol.State) {
	for _, g := range s.Gates {
		fmt.Fprintln(w)
		Gate(w, g)
		GateWays(w, server, t.ID, g)
	}
	if s.MoreGates > 0 {
		fmt.Fprintf(w, "\n%s for a person, shown by: %s approve %s STEP\n",
			wait(s.MoreGates, "more step"), server.StarterCommand(), terminal.ShellQuote(t.ID))
	}
	for _, parked := range s.Parks {
		fmt.Fprintln(w)
		ParkedStep(w, server, t.ID, parked)
	}
	if s.MoreParks > 0 {
		fmt.Fprintf(w, "\n%s for a person after a failure, shown by: %s resolve %s STEP --do retry\n",
			wait(s.MoreParks, "more step"), server.StarterCommand(), terminal.ShellQuote(t.ID))
	}
}

// wait says that so many wait.
func wait(n int, what string) string {
	verb := "wait"
	if n == 1 {
		verb = "waits"
	}
	return terminal.Plural(n, what) + " " + verb
}

// writeSession writes what the agent of a session has put aside, and what it has noted.
func writeSession(w io.Writer, v protocol.SessionView) {
	for _, part := range v.TakenBack {
		b := part.Branch
		if b == nil {
			continue
		}
		fmt.Fprintf(w, "branch %s, from savepoint %s", b.Name, part.To)
		if b.Score != nil {
			fmt.Fprintf(w, ", score %v", *b.Score)
		}
		fmt.Fprintf(w, ": %s", terminal.Plural(len(part.Steps), "step"))
		if b.Note != "" {
			fmt.Fprintf(w, ": %s", terminal.OneLine(b.Note))
		}
		fmt.Fprintln(w)
	}
	for _, n := range v.Notes {
		fmt.Fprintln(w, terminal.OneLine(n.String()))
	}
}

func writeSteps(w io.Writer, s protocol.State) {
	undos := map[string]string{}
	if s.Report != nil && s.Phase == protocol.Unwinding {
		for _, u := range s.Report.Steps {
			undos[u.Step] = undoneText(u)
		}
	}
	t := terminal.Table{}
	t.Row("STEP", "ACTION", "STATE", "TOOK", "")
	for _, v := range s.Steps {
		spent, text := "", v.Summary
		switch since := waitsSince(s, v); {
		case !since.IsZero():
			spent, text = terminal.Duration(v.Took(since)), "waits for a person, for "+terminal.Duration(time.Since(since))
		case v.State != protocol.AtGate && !v.Began.IsZero():
			spent = terminal.Duration(v.Took(time.Now()))
		}
		switch {
		case v.Error != "":
			text = Reason(v.Error)
		case v.Waiting != "":
			text = v.Waiting
		}
		if n := len(v.Progress); n > 0 {
			text = v.Progress[n-1]
		}
		t.Row(v.ID, v.Uses, cmp.Or(undos[v.ID], string(v.State)), spent, terminal.OneLine(text))
	}
	t.Write(w)
}

// waitsSince is since when a step waits at its gate; zero if it does not, or that is not known.
func waitsSince(s protocol.State, v protocol.StepView) time.Time {
	for _, g := range s.Gates {
		if g.Step == v.ID && v.State == protocol.AtGate {
			return g.Since
		}
	}
	return time.Time{}
}

// undoneText says what has become of a step by its undo; empty while that has not begun.
func undoneText(u compensations.StepReport) string {
	switch s := compensations.UndoState(u.State); s {
	case compensations.Settled:
		return string(u.Outcome)
	case compensations.Running:
		return "being undone"
	case compensations.Parked, compensations.Waiting, compensations.Accepted, compensations.Skipped:
		return "undo " + u.State
	}
	return ""
}

// horizonText says until when something can be rolled back; empty where it cannot.
func horizonText(until time.Time) string {
	if until.IsZero() {
		return ""
	}
	return "it can be rolled back until " + terminal.LocalTime(until, "2006-01-02 15:04") + " at the latest"
}

// writeActs prints what a workflow is about, and what was done about it since.
func writeActs(w io.Writer, t tasks.Run, s tasks.Standing) {
	if s.Of != "" {
		fmt.Fprintf(w, "%s\n", actText(verbs[t.Type], s.Of, s.Part))
	}
	for _, a := range s.After {
		fmt.Fprintf(w, "%s: %s %s", terminal.LocalTime(a.Started, "2006-01-02 15:04:05"), a.ID,
			actText(verbs[a.Type], a.Of, a.Part))
		if a.Status != "" {
			fmt.Fprintf(w, ": %s", a.Status)
		}
		fmt.Fprintln(w)
	}
	for _, b := range s.TakenBack {
		fmt.Fprintf(w, "%s: a rollback of environment %s to checkpoint %s has taken back what it had changed in %s; to go "+
			"forward again: starter env rollback %[2]s %[5]s\n", terminal.LocalTime(b.At, time.DateTime), b.Environment,
			b.Checkpoint, strings.Join(b.Parts, ", "), b.Safety)
	}
	for _, what := range s.Unknown {
		fmt.Fprintln(w, terminal.OneLine(what))
	}
	if s.Next != "" && (s.Of != "" || len(s.After) > 0) {
		fmt.Fprintf(w, "next: %s\n", s.Next)
	}
	if text := horizonText(s.Horizon); text != "" {
		fmt.Fprintf(w, "horizon: %s\n", text)
	}
}

// verbs say what a workflow does about another one.
var verbs = map[string]string{
	protocol.RecoverType: "recovers", protocol.RollbackType: "rolls back", protocol.RedoType: "redoes",
}

func actText(verb, of, part string) string {
	if part != "" {
		return fmt.Sprintf("%s %s %s", verb, of, part)
	}
	return verb + " " + of
}
