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
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// question is one that a person at the terminal can answer: about a gate, a parked step, or a
// parked undo.
type question struct {
	digest activities.Digest // of what is decided about
	prompt string
	help   string // for whoever has typed something that is no answer
	gone   string // said when it was decided elsewhere
	// decide returns what sends the decision, nil if the word is none.
	decide func(word, why string) sender
}

// sender sends a decision to a task, and says what that has come to.
type sender func(context.Context, tasks.Run) (string, error)

// questionsIn are those that stand in a state. An undo that waits for its host is none: it
// continues by itself.
func (a *asker) questionsIn(s protocol.State) (all []question) {
	for _, g := range s.Gates {
		all = append(all, aboutGate(a.Client, g))
	}
	for _, p := range s.Parks {
		all = append(all, aboutParkedStep(a.Client, p))
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

func aboutGate(c *tasks.Client, g protocol.GateView) question {
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
				return decide(ctx, c, t, g, why, approve, signFlags{})
			}
		},
	}
}

func aboutPark(c *tasks.Client, r compensations.StepReport) question {
	var ways []compensations.Do
	for _, way := range render.WaysToResolve(c.Server, r) {
		ways = append(ways, way.Do)
	}
	return askWhichWay(c, "the undo of step "+r.Step, r.Digest, ways,
		func(t tasks.Run, p protocol.Resolution) (protocol.Resolution, error) {
			p.Step = r.Step
			return signFlags{}.signResolution(r.Signed, p, ofUndo(t.ID, r))
		})
}

// aboutParkedStep asks about a step that has failed. Its parameters are corrected with starter
// resolve.
func aboutParkedStep(c *tasks.Client, p protocol.ParkView) question {
	return askWhichWay(c, "step "+p.Step, p.Digest, p.Ways,
		func(t tasks.Run, r protocol.Resolution) (protocol.Resolution, error) {
			r.Step = p.Step
			return signFlags{}.signResolution(p.Signed, r, ofStep(t.ID, p))
		})
}

// askWhichWay asks how something goes on that is parked. complete names its step in a resolution, and
// signs that.
func askWhichWay(c *tasks.Client, what string, digest activities.Digest, ways []compensations.Do,
	complete func(tasks.Run, protocol.Resolution) (protocol.Resolution, error)) question {
	var words []string
	for _, do := range ways {
		words = append(words, string(do))
	}
	last := len(words) - 1
	choice := strings.Join(words[:last], ", ") + " or " + words[last]
	return question{
		digest: digest,
		prompt: fmt.Sprintf("resolve %s? %s, and why", what, choice),
		help:   fmt.Sprintf("type %s, and a reason after it if you like", choice),
		gone:   what + " was decided elsewhere, or is parked for another reason now",
		decide: func(word, why string) sender {
			if !slices.Contains(words, word) {
				return nil
			}
			return func(ctx context.Context, t tasks.Run) (string, error) {
				r, err := complete(t, protocol.Resolution{Resolution: compensations.Resolution{
					Digest: digest, Do: compensations.Do(word), Who: currentUser(), Why: why,
				}})
				if err != nil {
					return "", err
				}
				return sendResolution(ctx, c, t, r)
			}
		},
	}
}
