package follow

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// liveView redraws the steps in place at the bottom of a terminal, below what needs a person, which
// scrolls.
type liveView struct {
	out  io.Writer
	size func() (width, height int)
	task tasks.Run

	mu     sync.Mutex
	n      *narrator
	blocks bytes.Buffer // written by the narrator, printed above the drawing
	state  protocol.State
	drawn  int // lines
	quit   chan struct{}
	done   chan struct{}
}

// redrawInterval is how often running times are updated.
const redrawInterval = time.Second

func newLiveView(server tasks.Server, t tasks.Run, out io.Writer, size func() (int, int)) *liveView {
	v := &liveView{out: out, size: size, task: t, quit: make(chan struct{}), done: make(chan struct{})}
	v.n = newNarrator(server, t, io.Discard, &v.blocks)
	go v.redrawPeriodically()
	return v
}

func (v *liveView) redrawPeriodically() {
	defer close(v.done)
	t := time.NewTicker(redrawInterval)
	defer t.Stop()
	for {
		select {
		case <-v.quit:
			return
		case now := <-t.C:
			v.mu.Lock()
			if v.drawn > 0 {
				v.draw(now)
			}
			v.mu.Unlock()
		}
	}
}

func (v *liveView) ShowState(s protocol.State, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n.narrate(s, now)
	v.state = s
	v.draw(now)
}

func (v *liveView) PrintLine(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(&v.blocks, line)
	v.draw(time.Now())
}

// Hide takes the drawing off the screen until the next state is shown.
func (v *liveView) Hide() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\r"+clearBelow, v.drawn)
	}
	v.drawn = 0
}

func (v *liveView) Close() {
	close(v.quit)
	<-v.done
}

const (
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	red        = "\x1b[31m" // failed, or needs a person
	green      = "\x1b[32m" // done
	yellow     = "\x1b[33m" // waits
	plain      = "\x1b[0m"
)

// draw replaces the last drawing, in one write so that nothing flickers.
func (v *liveView) draw(now time.Time) {
	width, height := v.size()
	var b bytes.Buffer
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", v.drawn)
	}
	b.WriteString(clearBelow)
	_, _ = v.blocks.WriteTo(&b)
	lines := drawTask(v.task, v.state, now, max(3, height-2))
	for _, line := range lines {
		text := terminal.Clip(line.text, max(1, width-1))
		b.WriteString(line.style + text)
		if line.style != "" {
			b.WriteString(plain)
		}
		b.WriteByte('\n')
	}
	v.drawn = len(lines)
	_, _ = v.out.Write(b.Bytes())
}

type drawnLine struct{ style, text string }

// maxTroubles is how many troubles are drawn.
const maxTroubles = 3

// drawTask draws a task in at most height lines.
func drawTask(t tasks.Run, s protocol.State, now time.Time, height int) []drawnLine {
	lines := []drawnLine{{bold,
		render.Title(t, s) + " · " + render.Phase(s) + " · " + terminal.Duration(now.Sub(t.Started))}}
	for _, t := range s.Troubles[:min(len(s.Troubles), maxTroubles, max(0, height-4))] {
		lines = append(lines, drawnLine{yellow, render.Trouble(t)})
	}
	undos := map[string]compensations.StepReport{}
	if s.Report != nil && s.Report.Status != compensations.Committed {
		for _, u := range s.Report.Steps {
			undos[u.Step] = u
		}
	}
	from, to := visibleSteps(s.Steps, undos, height-1-len(lines))
	if from > 0 {
		lines = append(lines, drawnLine{dim, fmt.Sprintf("   ... %d before", from)})
	}
	shown := s.Steps[from:to]
	below := linesBelow(shown, undos, height-len(lines)-len(shown)-1)
	for i, step := range shown {
		lines = append(lines, drawStep(step, undos[step.ID], now))
		for _, line := range below[i] {
			lines = append(lines, drawnLine{dim, "     " + line})
		}
	}
	if to < len(s.Steps) {
		lines = append(lines, drawnLine{dim, fmt.Sprintf("   ... %d more", len(s.Steps)-to)})
	}
	return lines
}

// belowStep is how many lines are drawn below one step.
const belowStep = 3

// linesBelow are the lines below each step, room in all: how far those under way have come, then
// what the last ones have returned.
func linesBelow(steps []protocol.StepView, undos map[string]compensations.StepReport, room int) map[int][]string {
	below := map[int][]string{}
	add := func(i int, lines []string) {
		lines = lines[:min(len(lines), max(0, room))]
		if room -= len(lines); len(lines) > 0 {
			below[i] = lines
		}
	}
	for i, s := range steps {
		if len(s.Progress) > 0 {
			var lines []string
			for _, line := range s.Progress[max(0, len(s.Progress)-belowStep):] {
				lines = append(lines, "| "+terminal.OneLine(line))
			}
			add(i, lines)
		}
	}
	for i, s := range slices.Backward(steps) {
		if s.State == protocol.Done && len(undos) == 0 {
			add(i, render.OutputLines(s.Outputs, min(belowStep, room)))
		}
	}
	return below
}

// visibleSteps is the range of at most room steps around the current one.
func visibleSteps(steps []protocol.StepView, undos map[string]compensations.StepReport, room int) (from, to int) {
	if len(steps) <= room {
		return 0, len(steps)
	}
	room = max(1, room-1) // one line for "... more" at the other end
	at := 0
	for i, s := range steps {
		if s.State != protocol.NotStarted &&
			(len(undos) == 0 || compensations.UndoState(undos[s.ID].State) != compensations.Settled) {
			at = i
		}
	}
	to = min(len(steps), at+room/3+1)
	from = max(0, to-room)
	return from, min(len(steps), from+room)
}

func drawStep(v protocol.StepView, u compensations.StepReport, now time.Time) drawnLine {
	sign, style, text := "·", dim, v.Name
	switch v.State {
	case protocol.Planning:
		sign, style, text = "?", "", "planning"
	case protocol.AtGate:
		sign, style, text = "◆", yellow, "waits at its gate"
	case protocol.Running:
		sign, style, text = "▸", bold, "running "+terminal.Duration(now.Sub(v.Began))
	case protocol.Done:
		sign, style, text = "✓", green, v.Summary
	case protocol.StepFailed:
		sign, style, text = "✗", red, render.Reason(v.Error)
	case protocol.StepParked:
		sign, style, text = "!", red, "parked: "+render.Reason(v.Error)
	case protocol.Canceled:
		sign, style, text = "✗", "", "canceled"
	}
	switch {
	case v.Waiting != "" && (v.State == protocol.Planning || v.State == protocol.Running):
		sign, style, text = "…", yellow, v.Waiting
	case v.Host != "" && v.State == protocol.Running:
		text += " on host " + v.Host
	}
	if u.Step != "" && tasks.Registered(u) {
		sign, style, text = drawUndo(u)
	}
	return drawnLine{style,
		strings.TrimRight(fmt.Sprintf(" %s %-16s %-24s %s", sign, v.ID, v.Uses, terminal.OneLine(text)), " ")}
}

func drawUndo(u compensations.StepReport) (sign, style, text string) {
	switch compensations.UndoState(u.State) {
	case compensations.Running:
		if u.Reason != "" {
			return "◂", yellow, "undoing, it fails: " + u.Reason
		}
		return "◂", bold, "undoing"
	case compensations.Waiting:
		return "…", yellow, u.Reason
	case compensations.Parked:
		return "!", red, "parked: " + u.Reason
	case compensations.Settled:
		sign, style = "↺", green
		if u.Outcome == activities.Nothing {
			sign = "○"
		}
		if !u.Clean() {
			sign, style = "!", red
		}
		return sign, style, strings.TrimSuffix(string(u.Outcome)+": "+u.Observed, ": ")
	case compensations.Accepted, compensations.Skipped:
		return "!", red, u.State
	}
	return "·", "", "to be undone"
}
