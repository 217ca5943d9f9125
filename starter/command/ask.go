package command

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/follow"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows"
)

// asker is a view that asks the person at the terminal about each gate, one at a time. While a question stands, the view shows nothing
// else; a gate that is decided elsewhere takes its question away.
type asker struct {
	follow.View
	*tasks.Client
	id  string
	say func(format string, args ...any)

	mu      sync.Mutex
	lines   chan string // what the person types; closed where nobody can
	asking  *workflows.GateView
	sending bool
	asked   map[activities.Digest]bool
	latest  workflows.State
	unseen  bool // the view has not shown the latest state
	stop    context.CancelFunc
	done    chan struct{}
}

func newAsker(ctx context.Context, c *tasks.Client, id string, v follow.View, in io.Reader, say func(string, ...any)) *asker {
	a := &asker{View: v, Client: c, id: id, say: say, lines: make(chan string), asked: map[activities.Digest]bool{}, done: make(chan struct{})}
	open, stop := context.WithCancel(ctx)
	a.stop = stop
	go a.readLines(open, in)
	go a.takeAnswers(ctx, open.Done())
	return a
}

// readLines ends with the program, or with the input: a read from a terminal cannot be interrupted.
func (a *asker) readLines(ctx context.Context, in io.Reader) {
	defer close(a.lines)
	for s := bufio.NewScanner(in); s.Scan(); {
		select {
		case a.lines <- s.Text():
		case <-ctx.Done():
			return
		}
	}
}

// takeAnswers finishes sending an answer before it ends.
func (a *asker) takeAnswers(ctx context.Context, closed <-chan struct{}) {
	defer close(a.done)
	for {
		select {
		case <-closed:
			return
		case line, open := <-a.lines:
			if !open {
				return
			}
			a.answer(ctx, line)
		}
	}
}

// ShowState shows a state, and asks about the first gate in it that the person has not been asked about.
func (a *asker) ShowState(s workflows.State, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest, a.unseen = s, true
	switch {
	case a.sending:
		return
	case a.asking != nil && gateIsOpen(s, a.asking.Digest):
		return
	case a.asking != nil:
		a.say("\nstep %s was decided elsewhere, or its gate has closed\n", a.asking.Step)
		a.asking = nil
	}
	a.unseen = false
	a.View.ShowState(s, now)
	a.askNext()
}

// PrintLine puts a line before the question, if one stands.
func (a *asker) PrintLine(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking == nil || a.sending {
		a.View.PrintLine(line)
		return
	}
	a.say("\n%s\n", line)
	a.ask()
}

func (a *asker) askNext() {
	for _, g := range a.latest.Gates {
		if !a.asked[g.Digest] {
			a.asked[g.Digest] = true
			a.asking = &g
			a.Hide()
			a.ask()
			return
		}
	}
}

func (a *asker) ask() { a.say("approve step %s? y or n, and why: ", a.asking.Step) }

// answer reads "y", "y WHY" or "n WHY". Everything else decides nothing.
func (a *asker) answer(ctx context.Context, line string) {
	a.mu.Lock()
	g := a.asking
	word, why, _ := strings.Cut(strings.TrimSpace(line), " ")
	d := workflows.Decision{Who: currentUser(), Why: strings.TrimSpace(why)}
	approve := false
	switch strings.ToLower(word) {
	case "y", "yes":
		approve = true
	case "n", "no":
	default:
		word = ""
	}
	if g == nil || word == "" || !approve && d.Why == "" {
		if g != nil {
			a.say("nothing was sent: type y to approve it, y WHY to say why, or n WHY to reject it\n")
			a.ask()
		}
		a.mu.Unlock()
		return
	}
	a.sending = true
	a.mu.Unlock()

	d.Step, d.Digest = g.Step, g.Digest
	told, err := a.send(ctx, d, approve)
	if err != nil {
		told = err.Error()
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking, a.sending = nil, false
	a.Hide()
	a.say("%s\n", told)
	if err != nil {
		delete(a.asked, g.Digest) // it is asked again if it is still open
		return
	}
	a.askNext()
}

// send sends a decision to the run that is there now.
func (a *asker) send(ctx context.Context, d workflows.Decision, approve bool) (string, error) {
	t, s, err := a.OpenTask(ctx, a.id)
	switch {
	case err != nil:
		return "", err
	case !gateIsOpen(s, d.Digest):
		return "", fmt.Errorf("the gate of step %s has closed in the meantime: nothing was sent", d.Step)
	}
	return sendDecision(ctx, a.Client, t, d, approve)
}

func gateIsOpen(s workflows.State, gate activities.Digest) bool {
	return slices.ContainsFunc(s.Gates, func(g workflows.GateView) bool { return g.Digest == gate })
}

// Close ends the asking. The person may be at the question still.
func (a *asker) Close() {
	a.stop()
	<-a.done
	if a.asking != nil {
		a.say("\n")
	}
	if a.unseen {
		a.View.ShowState(a.latest, time.Now())
	}
	a.View.Close()
}

// viewOf is how a task is shown where the command was typed, and whether somebody there can decide.
func (p *program) viewOf(ctx context.Context, c *tasks.Client, t tasks.Run) (v follow.View, person bool) {
	v = follow.NewView(c.Server, t, p.streams.Out)
	if !terminal.IsTerminal(p.streams.In) || !terminal.IsTerminal(p.streams.Out) {
		return v, terminal.IsTerminal(p.streams.In)
	}
	return newAsker(ctx, c, t.ID, v, p.streams.In, p.printf), true
}
