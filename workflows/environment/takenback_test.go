package environment

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// history is what an environment remembers of checkpoints and rollbacks that follow each other, one
// an hour.
type history struct {
	Rollbacks
	stored []Stored
}

func hour(n int) time.Time { return time.Date(2026, 1, 1, n, 0, 0, 0, time.UTC) }

func (h *history) keep(c Checkpoint) {
	h.stored = append([]Stored{{Checkpoint: c}}, h.stored...)
	h.Add(h.stored)
}

// back keeps the safety checkpoint of a rollback.
func (h *history) back(safety string, at int, to string, parts []string, past ...TaskWrote) {
	var created time.Time
	for _, s := range h.stored {
		if s.ID == to {
			created = s.Created
		}
	}
	h.keep(Checkpoint{ID: safety, Created: hour(at), RolledBackTo: to, RolledBackToCreated: created, PutBack: parts,
		Past: past})
}

func (h *history) drop(id string) {
	var left []Stored
	for _, s := range h.stored {
		if s.ID != id {
			left = append(left, s)
		}
	}
	h.stored = left
	h.Add(h.stored)
}

func (h *history) taken() []TakenBack {
	return View{Document: Document{Name: "shop"}, Rollbacks: h.Rollbacks}.TakenBack()["task"]
}

var both = []string{"code", "uploads"}

func wroteBoth(task string, at int) TaskWrote {
	return TaskWrote{Task: task, Parts: []PartWrote{{"code", hour(at)}, {"uploads", hour(at)}}, At: hour(at)}
}

// byBack is that the rollback with the safety checkpoint "back" has taken parts back at three.
func byBack(parts ...string) []TakenBack {
	return []TakenBack{{Environment: "shop", Checkpoint: "first", Safety: "back", Parts: parts, At: hour(3)}}
}

// rolledBack is a history in which what a task has changed is taken back.
func rolledBack() *history {
	h := &history{}
	h.keep(Checkpoint{ID: "first", Created: hour(1)})
	h.back("back", 3, "first", both, wroteBoth("task", 2))
	return h
}

// TestWhatIsTakenBackFollowsTheRollbacks goes back, forward, and in a part only.
func TestWhatIsTakenBackFollowsTheRollbacks(t *testing.T) {
	h := rolledBack()
	require.Equal(t, byBack(both...), h.taken())
	h.keep(Checkpoint{ID: "later", Created: hour(4)}) // has not what the task had changed
	require.Equal(t, byBack(both...), h.taken())
	h.back("forward", 5, "back", both)
	require.Empty(t, h.taken())
	h.back("again", 6, "later", both)
	require.Equal(t, byBack(both...), h.taken())

	h = rolledBack()
	h.back("forward", 5, "back", []string{"code"})
	require.Equal(t, byBack("uploads"), h.taken())
}

// TestWhatIsTakenBackOutlivesTheCheckpoints drops the ones that say so.
func TestWhatIsTakenBackOutlivesTheCheckpoints(t *testing.T) {
	h := rolledBack()
	h.back("forward", 5, "back", both)
	h.drop("forward")
	require.Empty(t, h.taken(), "it is there again, whoever forgets by what")

	h = rolledBack()
	h.keep(Checkpoint{ID: "second", Created: hour(4)})
	h.back("forth", 6, "second", both, wroteBoth("other", 5))
	h.drop("second")
	require.Equal(t, byBack(both...), h.taken())
	h.drop("back")
	h.drop("first")
	require.Equal(t, byBack(both...), h.taken())
}

// TestWhatRollbacksAreForgottenIsToldAsUnknown has more than stay known.
func TestWhatRollbacksAreForgottenIsToldAsUnknown(t *testing.T) {
	h := rolledBack()
	v := func() View { return View{Document: Document{Name: "shop"}, Rollbacks: h.Rollbacks} }
	require.Empty(t, v().Unknown(hour(0)))
	for i := range maxRollbacks {
		h.back(fmt.Sprintf("more-%d", i), 4+i, "first", both)
	}
	require.Len(t, h.All, maxRollbacks)
	require.Equal(t, []string{"what rollbacks of environment shop have taken back of tasks that began before " +
		"2026-01-01T03:00:00Z is not known any more"}, v().Unknown(hour(2)))
	require.Empty(t, v().Unknown(hour(3)))
	require.Empty(t, h.taken())

	h = rolledBack()
	h.All[0].MorePast = 7
	require.Equal(t, []string{"the rollback of environment shop to first at 2026-01-01T03:00:00Z has gone past 7 more " +
		"tasks, which are not told"}, v().Unknown(hour(2)))
}
