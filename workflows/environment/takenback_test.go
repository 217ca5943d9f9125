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
	h.askBack(nil, safety, at, to, parts, past...)
}

// askBack is back for a task that has asked for it, and takes back what it has changed itself.
func (h *history) askBack(own *TaskWrote, safety string, at int, to string, parts []string, past ...TaskWrote) {
	var created time.Time
	for _, s := range h.stored {
		if s.ID == to {
			created = s.Created
		}
	}
	h.keep(Checkpoint{ID: safety, Created: hour(at), RolledBackTo: to, RolledBackToCreated: created, PutBack: parts,
		Past: past, Own: own})
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

// TestWhatATaskHasTakenBackItselfIsNoMark, also when others go back to the same checkpoint later.
// Others take back only what was there.
func TestWhatATaskHasTakenBackItselfIsNoMark(t *testing.T) {
	wrote := func(at int) *TaskWrote { w := wroteBoth("task", at); return &w }
	ownRolledBack := func() *history {
		h := &history{}
		h.keep(Checkpoint{ID: "first", Created: hour(1)})
		h.askBack(wrote(2), "own", 3, "first", both)
		return h
	}
	taken := func(safety string, at int) []TakenBack {
		return []TakenBack{{Environment: "shop", Checkpoint: "first", Safety: safety, Parts: both, At: hour(at)}}
	}
	h := ownRolledBack()
	require.Empty(t, h.taken())
	h.back("other", 6, "first", both, *wrote(2))
	require.Empty(t, h.taken(), "it was not there any more")
	h.back("forward", 7, "other", both)
	require.Empty(t, h.taken())

	h = &history{}
	h.keep(Checkpoint{ID: "zero", Created: hour(0)})
	h.keep(Checkpoint{ID: "first", Created: hour(1)})
	h.askBack(wrote(2), "own", 3, "first", both)
	h.keep(Checkpoint{ID: "later", Created: hour(4)})
	h.back("other", 6, "later", both)
	require.Empty(t, h.taken())
	h.back("elsewhere", 7, "zero", both, *wrote(2))
	require.Equal(t, []TakenBack{{Environment: "shop", Checkpoint: "zero", Safety: "elsewhere", Parts: both, At: hour(7)}},
		h.taken(), "its rollback was taken back")

	h = ownRolledBack()
	h.back("other", 6, "first", both, *wrote(4))
	require.Equal(t, taken("other", 6), h.taken(), "it has changed them again")

	h = ownRolledBack()
	h.back("forward", 4, "own", both)
	h.back("other", 6, "first", both, *wrote(2))
	require.Equal(t, taken("other", 6), h.taken(), "somebody had gone forward")

	h = ownRolledBack()
	h.askBack(nil, "undone", 4, "own", both)
	h.back("other", 6, "first", both)
	require.Empty(t, h.taken(), "the task had undone all")

	h = ownRolledBack()
	h.askBack(wrote(4), "forward", 5, "own", both)
	h.back("other", 6, "first", both, *wrote(4))
	require.Equal(t, taken("other", 6), h.taken(), "what it has changed first was there")

	h = rolledBack()
	h.back("again", 6, "first", both, *wrote(2))
	require.Equal(t, byBack(both...), h.taken(), "the second rollback has found nothing of it")
}

// TestTheTasksOfAllRollbacksShareALimit, those that have asked for them with the others.
func TestTheTasksOfAllRollbacksShareALimit(t *testing.T) {
	h := &history{}
	h.keep(Checkpoint{ID: "first", Created: hour(1)})
	many := func(n int) (past []TaskWrote) {
		for i := range n {
			past = append(past, wroteBoth(fmt.Sprint("task-", i), 2))
		}
		return past
	}
	own := wroteBoth("own", 2)
	h.back("oldest", 3, "first", both, own)
	h.askBack(&own, "old", 4, "first", both, many(maxPastInAll-2)...)
	require.Len(t, h.All, 2, "all %d fit", maxPastInAll)
	h.back("new", 5, "first", both, own)
	require.Len(t, h.All, 2)
	require.Equal(t, hour(3), h.Since)
	h.back("newest", 6, "first", both, many(maxPastInAll+1)...)
	require.Len(t, h.All, 1, "the newest is known whatever it has")
	require.Equal(t, hour(5), h.Since)
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
