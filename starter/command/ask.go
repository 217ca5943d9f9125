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
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// asker is a view that asks the person at the terminal about each gate and each parked undo, one at
// a time. While a question stands, the view shows nothing else; what is decided elsewhere takes its
// question away.
type asker struct {
	follow.View
	*tasks.Client
	id  string
	say func(format string, args ...any)

	mu      sync.Mutex
	lines   chan string // what the person types; closed where nobody can
	asking  *question
	sending bool
	asked   map[activities.Digest]bool
	latest  protocol.State
	unseen  bool // the view has not shown the latest state
	stop    context.CancelFunc
	done    chan struct{}
}

func newAsker(ctx context.Context, c *tasks.Client, id string, v follow.View, in io.Reader,
	say func(string, ...any)) *asker {
	a := &asker{View: v, Client: c, id: id, say: say, lines: make(chan string), asked: map[activities.Digest]bool{},
		done: make(chan struct{})}
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

// ShowState shows a state, and asks the first question in it that the person has not been asked.
func (a *asker) ShowState(s protocol.State, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest, a.unseen = s, true
	switch {
	case a.sending:
		return
	case a.asking != nil && a.stands(s, a.asking.digest):
		return
	case a.asking != nil:
		a.say("\n%s\n", a.asking.gone)
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
	for _, q := range a.questionsIn(a.latest) {
		if !a.asked[q.digest] {
			a.asked[q.digest] = true
			a.asking = &q
			a.Hide()
			a.ask()
			return
		}
	}
}

func (a *asker) ask() { a.say("%s: ", a.asking.prompt) }

// answer reads a word and, behind it, why. What is no answer to the question decides nothing.
func (a *asker) answer(ctx context.Context, line string) {
	a.mu.Lock()
	q := a.asking
	if q == nil {
		a.mu.Unlock()
		return
	}
	word, why, _ := strings.Cut(strings.TrimSpace(line), " ")
	send := q.decide(strings.ToLower(word), strings.TrimSpace(why))
	if send == nil {
		a.say("nothing was sent: %s\n", q.help)
		a.ask()
		a.mu.Unlock()
		return
	}
	a.sending = true
	a.mu.Unlock()

	told, err := a.send(ctx, q, send)
	if err != nil {
		told = err.Error()
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking, a.sending = nil, false
	a.Hide()
	a.say("%s\n", told)
	if err != nil {
		delete(a.asked, q.digest) // it is asked again if it still stands
		return
	}
	a.askNext()
}

// send sends a decision to the run that is there now.
func (a *asker) send(ctx context.Context, q *question, send sender) (string, error) {
	t, s, err := a.OpenTask(ctx, a.id)
	switch {
	case err != nil:
		return "", err
	case !a.stands(s, q.digest):
		return "", fmt.Errorf("%s: nothing was sent", q.gone)
	}
	return send(ctx, t)
}

// stands reports whether what was asked about still waits. Where more waits than a state lists, the
// task itself says so at the decision.
func (a *asker) stands(s protocol.State, asked activities.Digest) bool {
	return s.MoreGates+s.MoreParks > 0 ||
		slices.ContainsFunc(a.questionsIn(s), func(q question) bool { return q.digest == asked })
}

// Close ends the asking. The person may still be at the question.
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
