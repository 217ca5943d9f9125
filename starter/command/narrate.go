package command

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// narrator tells what has changed between one state of a task and the next: each thing once.
type narrator struct {
	c       *connection
	id      string
	started time.Time
	// lines and blocks are where it tells it: a line for each step of the way, a block for what needs a person.
	lines, blocks io.Writer

	steps     map[string]workflows.StepState
	notes     map[string]int
	gates     map[activities.Digest]bool
	unwinding bool
	undos     map[string]string
	undoNotes map[string]int
	parks     map[activities.Digest]bool
	ignored   int
}

func newNarrator(c *connection, t taskRun, lines, blocks io.Writer) *narrator {
	return &narrator{
		c: c, id: t.ID, started: t.Started, lines: lines, blocks: blocks,
		steps: map[string]workflows.StepState{}, notes: map[string]int{}, gates: map[activities.Digest]bool{},
		undos: map[string]string{}, undoNotes: map[string]int{}, parks: map[activities.Digest]bool{},
	}
}

// tell tells what is new in s, which was seen at now.
func (n *narrator) tell(s workflows.State, now time.Time) {
	for _, v := range s.Steps {
		n.step(v, now)
	}
	for _, g := range s.Gates {
		if !n.gates[g.Digest] {
			n.gates[g.Digest] = true
			fmt.Fprintln(n.blocks)
			writeGate(n.blocks, g)
			n.c.writeWays(n.blocks, n.id, g)
			fmt.Fprintln(n.blocks)
		}
	}
	if s.Cause != nil && !n.unwinding && s.Phase != workflows.Compiling {
		n.unwinding = true
		fmt.Fprintf(n.lines, "unwinding, last in first out: %s\n", causeText(*s.Cause))
	}
	if s.Report != nil && s.Report.Status != compensations.Committed {
		for _, u := range slices.Backward(s.Report.Steps) {
			told := 0
			if s.Phase == workflows.Closed {
				told = n.notes[u.Step]
			}
			n.undo(u, told, now)
		}
	}
	for _, why := range s.Ignored[min(n.ignored, len(s.Ignored)):] {
		fmt.Fprintf(n.blocks, "ignored signal: %s\n", oneLine(why))
	}
	n.ignored = max(n.ignored, len(s.Ignored))
}

func (n *narrator) step(v workflows.StepView, now time.Time) {
	was, seen := n.steps[v.ID]
	at := now
	if !v.Ended.IsZero() {
		at = v.Ended
	}
	// What went by between two looks is told by the times that the state holds.
	if !seen && (v.State == workflows.Done || v.State == workflows.StepFailed) && !v.Began.IsZero() {
		n.line(v.Began, v.ID, v.Uses, "started")
	}
	for _, note := range v.Notes[min(n.notes[v.ID], len(v.Notes)):] {
		n.line(at, v.ID, v.Uses, oneLine(note))
	}
	n.notes[v.ID] = max(n.notes[v.ID], len(v.Notes))
	if v.State == "" || v.State == workflows.NotStarted || v.State == was {
		return
	}
	n.steps[v.ID] = v.State
	var text string
	switch v.State {
	case workflows.Planning:
		text = "planning"
	case workflows.AtGate:
		text = "waits at its gate"
	case workflows.Running:
		text = "started"
		if v.Host != "" {
			text += " on host " + v.Host
		}
		if !v.Began.IsZero() && !seen {
			at = v.Began
		}
	case workflows.Done:
		text = "done"
		if v.Summary != "" {
			text += ": " + v.Summary
		}
	case workflows.StepFailed:
		text = "failed: " + v.Error
	case workflows.Canceled:
		text = "canceled"
	}
	n.line(at, v.ID, v.Uses, oneLine(text))
}

// undo tells of one undo; the first notes of a report's step may be those of its forward, which were told.
func (n *narrator) undo(u compensations.StepReport, told int, now time.Time) {
	if !registered(u) {
		return
	}
	notes := u.Notes[min(told, len(u.Notes)):]
	for _, note := range notes[min(n.undoNotes[u.Step], len(notes)):] {
		n.line(now, u.Step, u.Action, oneLine(note))
	}
	n.undoNotes[u.Step] = max(n.undoNotes[u.Step], len(notes))
	if compensations.UndoState(u.State) == compensations.Parked && !n.parks[u.Digest] {
		n.parks[u.Digest] = true
		fmt.Fprintln(n.blocks)
		writePark(n.blocks, n.id, u)
		fmt.Fprintln(n.blocks)
	}
	key := u.State + " " + string(u.Outcome) + " " + u.Reason
	if n.undos[u.Step] == key {
		return
	}
	n.undos[u.Step] = key
	var text string
	switch compensations.UndoState(u.State) {
	case compensations.Running:
		text = "undoing"
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
	n.line(now, u.Step, u.Action, oneLine(text))
}

// line tells one thing about one step.
func (n *narrator) line(at time.Time, step, action, text string) {
	since := max(0, at.Sub(n.started)).Seconds()
	fmt.Fprintf(n.lines, "%s\n", strings.TrimRight(fmt.Sprintf("%8.1fs  %-16s %-24s %s", since, step, action, text), " "))
}
