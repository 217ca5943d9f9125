package environment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhatIsTakenBackFollowsTheRollbacks goes back, forward, and in a part only.
func TestWhatIsTakenBackFollowsTheRollbacks(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	both := []string{"code", "uploads"}
	first := Checkpoint{ID: "first", Created: at(1)}
	wrote := TaskWrote{Task: "task", Parts: []PartWrote{{"code", at(2)}, {"uploads", at(2)}}, At: at(2)}
	back := Checkpoint{ID: "back", Environment: "shop", Created: at(3), RolledBackTo: "first", PutBack: both,
		Past: []TaskWrote{wrote}}
	later := Checkpoint{ID: "later", Created: at(4)} // has not what the task had changed
	forward := Checkpoint{ID: "forward", Created: at(5), RolledBackTo: "back", PutBack: both}
	again := Checkpoint{ID: "again", Created: at(6), RolledBackTo: "later", PutBack: both}
	taken := func(newestFirst ...Checkpoint) []TakenBack { return View{Checkpoints: newestFirst}.TakenBack()["task"] }
	by := func(parts ...string) []TakenBack {
		return []TakenBack{{Environment: "shop", Checkpoint: "first", Safety: "back", Parts: parts, At: at(3)}}
	}
	require.Equal(t, by(both...), taken(back, first))
	require.Equal(t, by(both...), taken(later, back, first))
	require.Empty(t, taken(forward, later, back, first))
	require.Equal(t, by(both...), taken(again, forward, later, back, first))
	forward.PutBack = []string{"code"}
	require.Equal(t, by("uploads"), taken(forward, later, back, first))
	again.PutBack = []string{"code"}
	require.Equal(t, by(both...), taken(again, forward, later, back, first))
	require.Empty(t, taken(forward, first), "the safety checkpoint is gone")
}
