package follow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// narrator writes what changed between one state of a task and the next, each thing once.
type narrator struct {
	server  tasks.Server
	id      string
	started time.Time
	// lines receives a line for each change, blocks what needs a person.
	lines, blocks io.Writer

	steps     map[stepTry]protocol.StepState
	notes     map[noteOf]bool
	gates     map[activities.Digest]bool
	unwinding bool
	undos     map[stepTry]string
	parks     map[activities.Digest]bool
	hosts     map[string]bool
	troubles  map[trouble]bool
	ignored   int

	pending []told    // what the present look has found, written in order of time
	last    time.Time // of the line written last
}

// told is something that has happened, and what is written about it.
type told struct {
	at    time.Time
	out   io.Writer
	timed bool // it begins with the time
	text  string
}

func newNarrator(server tasks.Server, t tasks.Run, lines, blocks io.Writer) *narrator {
	return &narrator{
		server: server, id: t.ID, started: t.Started, lines: lines, blocks: blocks,
		steps: map[stepTry]protocol.StepState{}, notes: map[noteOf]bool{}, gates: map[activities.Digest]bool{},
		undos: map[stepTry]string{}, parks: map[activities.Digest]bool{}, hosts: map[string]bool{},
		troubles: map[trouble]bool{},
	}
}

// stepTry is one try of a step, noteOf what was printed about it.
type stepTry struct {
	step   string
	number int
}

// trouble is what was printed of a protocol.Trouble.
type trouble struct{ what, reason string }

type noteOf struct {
	try  stepTry
	note string
}

// narrate writes what is new in s, the state as of now.
func (n *narrator) narrate(s protocol.State, now time.Time) {
	since := map[string]time.Time{}
	for _, g := range s.Gates {
		since[g.Step] = g.Since
	}
	for _, v := range s.Steps {
		at := now
		if v.State == protocol.AtGate && !since[v.ID].IsZero() {
			at = since[v.ID]
		}
		n.narrateStep(v, at)
	}
	for _, host := range s.AwaitedHosts {
		if !n.hosts[host] {
			n.hosts[host] = true
			n.tell(told{at: now, out: n.lines, timed: true, text: "waits for a worker of host " + terminal.OneLine(host) + "\n"})
		}
	}
	for _, t := range s.Troubles {
		if each := (trouble{t.What, t.Reason}); !n.troubles[each] {
			n.troubles[each] = true
			n.tell(told{at: now, out: n.lines, timed: true, text: render.Trouble(t) + "\n"})
		}
	}
	for _, g := range s.Gates {
		if !n.gates[g.Digest] {
			n.gates[g.Digest] = true
			at := g.Since
			if at.IsZero() {
				at = now
			}
			n.tellBlock(at, func(w io.Writer) {
				render.Gate(w, g)
				render.GateWays(w, n.server, n.id, g)
			})
		}
	}
	for _, p := range s.Parks {
		if !n.parks[p.Digest] {
			n.parks[p.Digest] = true
			n.tellBlock(now, func(w io.Writer) { render.ParkedStep(w, n.server, n.id, p) })
		}
	}
	if s.Cause != nil && !n.unwinding && s.Phase != protocol.Compiling && hasBegun(s) {
		n.unwinding = true
		n.tell(told{at: now, out: n.lines, text: fmt.Sprintf("unwinding, last in first out: %s\n", render.Cause(*s.Cause))})
	}
	if s.Report != nil && s.Report.Status != compensations.Committed {
		for _, u := range slices.Backward(s.Report.Steps) {
			n.narrateUndo(u, now)
		}
	}
	for _, why := range s.Ignored[min(n.ignored, len(s.Ignored)):] {
		n.tell(told{at: now, out: n.blocks, text: fmt.Sprintf("ignored signal: %s\n", terminal.OneLine(why))})
	}
	n.ignored = max(n.ignored, len(s.Ignored))
	n.flush()
}

func (n *narrator) tell(t told) { n.pending = append(n.pending, t) }

// tellBlock tells what needs a person, with an empty line before and after it.
func (n *narrator) tellBlock(at time.Time, write func(io.Writer)) {
	var b strings.Builder
	b.WriteByte('\n')
	write(&b)
	b.WriteByte('\n')
	n.tell(told{at: at, out: n.blocks, text: b.String()})
}

// flush writes what is pending in order of time: steps that run at the same time take turns. What
// is learned late, by a clock that is behind, is written with the time of the line before it.
func (n *narrator) flush() {
	slices.SortStableFunc(n.pending, func(a, b told) int { return a.at.Compare(b.at) })
	for _, t := range n.pending {
		if t.timed {
			if t.at.After(n.last) {
				n.last = t.at
			}
			fmt.Fprintf(t.out, "%8.1fs  ", max(0, n.last.Sub(n.started)).Seconds())
		}
		_, _ = io.WriteString(t.out, t.text)
	}
	n.pending = n.pending[:0]
}

func (n *narrator) narrateStep(v protocol.StepView, now time.Time) {
	try := stepTry{v.ID, max(1, v.Try)}
	was, seen := n.steps[try]
	at := now
	if !v.Ended.IsZero() && was != protocol.Done { // what becomes of a step that is done happens now
		at = v.Ended
	}
	// The step began and ended between two polls: the state has the times.
	if !seen && (v.State == protocol.Done || v.State == protocol.StepFailed) && !v.Began.IsZero() {
		n.writeLine(v.Began, v.ID, v.Uses, "started")
	}
	for _, t := range v.Tries() {
		for _, note := range t.Notes {
			text := note
			if t.Try != try.number {
				text = t.Text(note)
			}
			if n.isNew(stepTry{v.ID, t.Try}, note) {
				n.writeLine(at, v.ID, v.Uses, render.Note(text))
			}
			n.isNew(try, t.Text(note)) // as a report tells it that has no row for its try
		}
	}
	if v.State == "" || v.State == protocol.NotStarted || v.State == was {
		return
	}
	n.steps[try] = v.State
	if v.State == protocol.Running && !v.Began.IsZero() && !seen {
		at = v.Began
	}
	var below []string
	if v.State == protocol.Done {
		for _, line := range render.OutputLines(v.Outputs, narratedOutput) {
			below = append(below, terminal.Indent("            ", line))
		}
	}
	if _, output, more := strings.Cut(strings.TrimSpace(v.Error), "\n"); more &&
		(v.State == protocol.StepFailed && !n.unwinding || v.State == protocol.RolledBack) {
		below = append(below, terminal.Indent("            | ", output))
	}
	n.writeLine(at, v.ID, v.Uses, terminal.OneLine(describeStep(v)), below...)
}

// describeStep says how a step stands.
func describeStep(v protocol.StepView) string {
	switch v.State {
	case protocol.Planning:
		return "planning"
	case protocol.AtGate:
		return "waits at its gate"
	case protocol.Running:
		if v.Host != "" {
			return "started on host " + v.Host
		}
		return "started"
	case protocol.Done:
		if v.Summary != "" {
			return "done: " + v.Summary
		}
		return "done"
	case protocol.StepFailed:
		return "failed: " + render.Reason(v.Error)
	case protocol.StepParked:
		return "failed and is parked: " + render.Reason(v.Error)
	case protocol.RolledBack:
		if v.Error != "" {
			return "failed and was rolled back: " + render.Reason(v.Error)
		}
		return "rolled back"
	case protocol.LeftOut:
		return "left out"
	case protocol.Canceled:
		return "canceled"
	}
	return ""
}

// narratedOutput is how many lines of a step's outputs are written; starter show has them all.
const narratedOutput = 10

// hasBegun reports whether anything of a task was begun: a task that is refused has nothing to
// unwind.
func hasBegun(s protocol.State) bool {
	return slices.ContainsFunc(s.Steps,
		func(v protocol.StepView) bool { return v.State != "" && v.State != protocol.NotStarted }) ||
		s.Report != nil && slices.ContainsFunc(s.Report.Steps, tasks.Registered)
}

// isNew reports whether a note of a try was not printed yet, and marks it as printed.
func (n *narrator) isNew(try stepTry, note string) bool {
	of := noteOf{try, note}
	isNew := !n.notes[of]
	n.notes[of] = true
	return isNew
}

// narrateUndo writes what is new of one undo. Notes of its forward are in its report too.
func (n *narrator) narrateUndo(u compensations.StepReport, now time.Time) {
	if !tasks.Registered(u) {
		return
	}
	try := stepTry{u.Step, max(1, u.Try)}
	for _, note := range u.Notes {
		if n.isNew(try, note) {
			n.writeLine(now, u.Step, u.Action, render.Note(note))
		}
	}
	if compensations.UndoState(u.State) == compensations.Parked && !n.parks[u.Digest] {
		n.parks[u.Digest] = true
		n.tellBlock(now, func(w io.Writer) { render.Park(w, n.server, n.id, u) })
	}
	key := u.State + " " + string(u.Outcome) + " " + u.Reason
	if n.undos[try] == key {
		return
	}
	n.undos[try] = key
	var text string
	switch compensations.UndoState(u.State) {
	case compensations.Running:
		text = "undoing"
		if u.Reason != "" {
			text += ", it fails: " + u.Reason
		}
	case compensations.Waiting:
		text = "undo: " + u.Reason
	case compensations.Settled:
		text = "undo: " + string(u.Outcome)
		if u.Observed != "" {
			text += ": " + u.Observed
		}
	case compensations.Accepted, compensations.Skipped:
		text = "undo: " + u.State
	default:
		return
	}
	n.writeLine(now, u.Step, u.Action, terminal.OneLine(text))
}

// writeLine tells one change of one step, and what stands below it.
func (n *narrator) writeLine(at time.Time, step, action, text string, below ...string) {
	lines := []string{strings.TrimRight(fmt.Sprintf("%-16s %-24s %s", step, action, text), " ")}
	for _, b := range below {
		lines = append(lines, strings.Split(b, "\n")...)
	}
	for i, line := range lines {
		if cut := terminal.Clip(line, maxLine); cut != line {
			lines[i] = fmt.Sprintf("%s (all of it: %s show %s %s)", cut, n.server.StarterCommand(), terminal.ShellQuote(n.id),
				terminal.ShellQuote(step))
		}
	}
	n.tell(told{at: at, out: n.lines, timed: true, text: strings.Join(lines, "\n") + "\n"})
}

// maxLine is how many characters of a line of a step are written: what programs print for programs
// has thousands.
const maxLine = 300
