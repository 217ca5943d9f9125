package container_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// TestWhatTheProgramWritesAtItsStartIsNobodyElsesChange has a hook of the whole process.
func TestWhatTheProgramWritesAtItsStartIsNobodyElsesChange(t *testing.T) {
	for name, open := range map[string]func(testing.TB, string) *stage{"read by export": newStage,
		"read by a helper": layersStage} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			b := startOwn(t, "date +%N >>/srv/starts; mkdir -p /srv/run; echo $$ >/srv/run/pid\nsleep infinity\n")
			wrote := func() bool { return b.Has(t, "/srv/run/pid") }
			require.Eventually(t, wrote, time.Minute, 10*time.Millisecond)
			b.Run(t, "rm /srv/run/pid") // so that each start is seen
			var entries []activities.Entry
			for _, command := range []string{"echo 1 >/srv/1", "echo 2 >/srv/2", "echo 3 >/srv/3"} {
				e := s.entry(t)
				_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": command}), "")
				require.NoError(t, err)
				entries = append(entries, e)
			}
			point.Hook(func(label string) {
				if label == "container.exec:new-started" {
					assert.Eventually(t, wrote, time.Minute, 10*time.Millisecond)
				}
			})
			defer point.Hook(nil)
			third := mustUndo(t, s, entries[2], activities.Decision{Redoable: true})
			assert.Equal(t, activities.Compensated, third.Outcome, "%+v", third)
			seen, err := s.action.Observe(t.Context(), entries[2])
			require.NoError(t, err)
			assert.Equal(t, activities.AsBefore, seen.State)
			seen, err = s.action.Observe(t.Context(), entries[1])
			require.NoError(t, err)
			assert.Equal(t, activities.AsLeft, seen.State)

			b.Run(t, "echo theirs >>/srv/starts")
			u, err := s.action.Undo(t.Context(), entries[1], activities.Decision{})
			require.NoError(t, err)
			require.Equal(t, activities.Drifted, u.Outcome, "what others add to what it has written is theirs")
			assert.Contains(t, u.Drift.Diff, "/srv/starts")
			assert.NotContains(t, u.Drift.Diff, "/srv/run/pid")
			mustUndo(t, s, entries[1], activities.Decision{Force: u.Drift.Digest})
			mustUndo(t, s, entries[0], activities.Decision{Redoable: true})
			_, err = s.action.Apply(t.Context(), s.again(t, entries[0]),
				step(t, map[string]any{"container": b.Name, "command": "echo 1 >/srv/1"}), "")
			require.NoError(t, err, "it is nobody else's change to a redo either")
		})
	}
}
