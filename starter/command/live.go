package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// liveView draws the steps at the bottom of a terminal, again and again in the same place, and lets what needs a person
// scroll away above them.
type liveView struct {
	out  io.Writer
	size func() (width, height int)
	task taskRun

	mu     sync.Mutex
	n      *narrator
	blocks bytes.Buffer // what the narrator has for above the drawing
	state  workflows.State
	drawn  int // lines
	quit   chan struct{}
	done   chan struct{}
}

// redraw is how often running times are brought up to date.
const redraw = time.Second

// newView is a live one on a terminal, else a plain one.
func newView(c *connection, t taskRun, out io.Writer) view {
	if !isTerminal(out) || os.Getenv("TERM") == "dumb" {
		return newPlainView(c, t, out)
	}
	file := out.(*os.File)
	return newLiveView(c, t, out, func() (int, int) {
		w, h, err := term.GetSize(int(file.Fd()))
		if err != nil || w <= 0 || h <= 0 { // a terminal that nobody has given a size
			return 80, 24
		}
		return w, h
	})
}

func newLiveView(c *connection, t taskRun, out io.Writer, size func() (int, int)) *liveView {
	v := &liveView{out: out, size: size, task: t, quit: make(chan struct{}), done: make(chan struct{})}
	v.n = newNarrator(c, t, io.Discard, &v.blocks)
	go v.tick()
	return v
}

func (v *liveView) tick() {
	defer close(v.done)
	t := time.NewTicker(redraw)
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

func (v *liveView) show(s workflows.State, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.n.tell(s, now)
	v.state = s
	v.draw(now)
}

func (v *liveView) say(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(&v.blocks, line)
	v.draw(time.Now())
}

func (v *liveView) close() {
	close(v.quit)
	<-v.done
}

const (
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	plain      = "\x1b[0m"
)

// draw replaces what was drawn last. Everything goes out in one write, so that nothing flickers.
func (v *liveView) draw(now time.Time) {
	width, height := v.size()
	var b bytes.Buffer
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", v.drawn)
	}
	b.WriteString(clearBelow)
	_, _ = v.blocks.WriteTo(&b)
	lines := drawing(v.task, v.state, now, max(3, height-2))
	for _, line := range lines {
		text := clipped(line.text, max(1, width-1))
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

// drawing is a task in at most height lines.
func drawing(t taskRun, s workflows.State, now time.Time, height int) []drawnLine {
	lines := []drawnLine{{bold, title(t, s) + " · " + phase(s) + " · " + took(now.Sub(t.Started))}}
	undos := map[string]compensations.StepReport{}
	if s.Report != nil && s.Report.Status != compensations.Committed {
		for _, u := range s.Report.Steps {
			undos[u.Step] = u
		}
	}
	from, to := visible(s.Steps, undos, height-2)
	if from > 0 {
		lines = append(lines, drawnLine{dim, fmt.Sprintf("   ... %d before", from)})
	}
	for _, step := range s.Steps[from:to] {
		lines = append(lines, drawStep(step, undos[step.ID], now))
	}
	if to < len(s.Steps) {
		lines = append(lines, drawnLine{dim, fmt.Sprintf("   ... %d more", len(s.Steps)-to)})
	}
	return lines
}

// visible is the stretch of steps round where the task stands.
func visible(steps []workflows.StepView, undos map[string]compensations.StepReport, room int) (from, to int) {
	if len(steps) <= room {
		return 0, len(steps)
	}
	room = max(1, room-1) // one for what is left out at the other end
	at := 0
	for i, s := range steps {
		if s.State != workflows.NotStarted && (len(undos) == 0 || compensations.UndoState(undos[s.ID].State) != compensations.Settled) {
			at = i
		}
	}
	to = min(len(steps), at+room/3+1)
	from = max(0, to-room)
	return from, min(len(steps), from+room)
}

func phase(s workflows.State) string {
	if s.Phase == workflows.Closed && s.Report != nil {
		return string(s.Report.Status)
	}
	if len(s.Gates) > 0 {
		return "waits at a gate"
	}
	if s.Phase == "" {
		return "starting"
	}
	return string(s.Phase)
}

func drawStep(v workflows.StepView, u compensations.StepReport, now time.Time) drawnLine {
	sign, style, text := "·", dim, v.Name
	switch v.State {
	case workflows.Planning:
		sign, style, text = "?", "", "planning"
	case workflows.AtGate:
		sign, style, text = "◆", bold, "waits at its gate"
	case workflows.Running:
		sign, style, text = "▸", bold, "running "+took(now.Sub(v.Began))
	case workflows.Done:
		sign, style, text = "✓", "", v.Summary
	case workflows.StepFailed:
		sign, style, text = "✗", bold, v.Error
	case workflows.Canceled:
		sign, style, text = "✗", "", "canceled"
	}
	if v.Host != "" && v.State == workflows.Running {
		text += " on host " + v.Host
	}
	if u.Step != "" && registered(u) {
		sign, style, text = drawUndo(u)
	}
	return drawnLine{style, strings.TrimRight(fmt.Sprintf(" %s %-16s %-24s %s", sign, v.ID, v.Uses, oneLine(text)), " ")}
}

func drawUndo(u compensations.StepReport) (sign, style, text string) {
	switch compensations.UndoState(u.State) {
	case compensations.Running:
		return "◂", bold, "undoing"
	case compensations.Waiting:
		return "…", bold, u.Reason
	case compensations.Parked:
		return "!", bold, "parked: " + u.Reason
	case compensations.Settled:
		sign = "↺"
		if u.Outcome == activities.Nothing {
			sign = "○"
		}
		if !u.Clean() {
			sign, style = "!", bold
		}
		return sign, style, strings.TrimSuffix(string(u.Outcome)+": "+u.Observed, ": ")
	case compensations.Accepted, compensations.Skipped:
		return "!", bold, u.State
	}
	return "·", "", "to be undone"
}
