package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows"
)

// question is one that a person at the terminal can answer: about a gate, or a parked undo.
type question struct {
	digest activities.Digest // of what is decided about
	prompt string
	help   string // for who has typed what is no answer
	gone   string // said when it was decided elsewhere
	// decide returns what sends the decision, nil if the word is none.
	decide func(word, why string) sender
}

// sender sends a decision to a task, and says what that has come to.
type sender func(context.Context, tasks.Run) (string, error)

// questionsIn are those that stand in a state. An undo that waits for its host is none: it continues by itself.
func (a *asker) questionsIn(s workflows.State) (all []question) {
	for _, g := range s.Gates {
		all = append(all, aboutGate(a.Client, g))
	}
	if s.Report == nil {
		return all
	}
	for _, r := range s.Report.Steps {
		if compensations.UndoState(r.State) == compensations.Parked {
			all = append(all, aboutPark(a.Client, r))
		}
	}
	return all
}

func aboutGate(c *tasks.Client, g workflows.GateView) question {
	return question{
		digest: g.Digest,
		prompt: fmt.Sprintf("approve step %s? y or n, and why", g.Step),
		help:   "type y to approve it, y WHY to say why, or n WHY to reject it",
		gone:   fmt.Sprintf("step %s was decided elsewhere, or its gate has closed", g.Step),
		decide: func(word, why string) sender {
			approve := word == "y" || word == "yes"
			if reject := word == "n" || word == "no"; !approve && (!reject || why == "") {
				return nil
			}
			return func(ctx context.Context, t tasks.Run) (string, error) {
				return sendDecision(ctx, c, t, workflows.Decision{Step: g.Step, Digest: g.Digest, Who: currentUser(), Why: why}, approve)
			}
		},
	}
}

func aboutPark(c *tasks.Client, r compensations.StepReport) question {
	var ways []string
	for _, way := range render.WaysToResolve(c.Server, r) {
		ways = append(ways, string(way.Do))
	}
	last := len(ways) - 1
	choice := strings.Join(ways[:last], ", ") + " or " + ways[last]
	return question{
		digest: r.Digest,
		prompt: fmt.Sprintf("resolve the undo of step %s? %s, and why", r.Step, choice),
		help:   fmt.Sprintf("type %s, and a reason after it if you like", choice),
		gone:   fmt.Sprintf("the undo of step %s was decided elsewhere, or is parked for another reason now", r.Step),
		decide: func(word, why string) sender {
			if !slices.Contains(ways, word) {
				return nil
			}
			return func(ctx context.Context, t tasks.Run) (string, error) {
				return sendResolution(ctx, c, t, compensations.Resolution{
					Step: r.Step, Digest: r.Digest, Do: compensations.Do(word), Who: currentUser(), Why: why,
				})
			}
		},
	}
}
