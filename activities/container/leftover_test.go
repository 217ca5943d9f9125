package container_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// writer goes on writing when its step is over.
const writer = "mkdir -p /srv/own; echo 0 >/srv/log; (i=0; while :; do i=$((i+1)); echo $i >>/srv/log; echo $i " +
	">/srv/own/$((i % 50)); sleep 0.01; done) >/dev/null 2>&1 & sleep 0.3"

func TestWhatAStepLeavesRunningDoesNotKeepItFromBeingUndone(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]container.LayersMode{"layers": container.LayersRequire,
		"docker commit": container.LayersNever} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			t.Cleanup(func() { containertest.RemoveLayers(t, state) })
			s := newStageAt(t, container.Config{State: state, Layers: mode})
			b := containertest.Start(t, withGNU(t))
			b.Put(t, "/srv", map[string]string{"a": "base\n"})
			e, other := s.entry(t), s.entry(t)
			_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": writer}), "")
			require.NoError(t, err)
			u, err := s.action.Undo(t.Context(), e, activities.Decision{})
			require.NoError(t, err)
			require.NotEqual(t, activities.Drifted, u.Outcome, "%+v", u.Drift)
			assert.Equal(t, "gone\n", saidBy(t, b, "[ -e /srv/log ] || [ -e /srv/own ] || echo gone"))

			// What others have changed is drift all the same, and what is shown stays so: it can be forced.
			_, err = s.action.Apply(t.Context(), other, step(t, map[string]any{"container": b.Name, "command": writer}), "")
			require.NoError(t, err)
			b.Run(t, "echo theirs >/srv/a")
			u, err = s.action.Undo(t.Context(), other, activities.Decision{})
			require.NoError(t, err)
			require.Equal(t, activities.Drifted, u.Outcome)
			assert.Contains(t, u.Drift.Diff, "/srv/a")
			assert.NotContains(t, u.Drift.Diff, "/srv/log")
			u, err = s.action.Undo(t.Context(), other, activities.Decision{Force: u.Drift.Digest})
			require.NoError(t, err)
			require.NotEqual(t, activities.Drifted, u.Outcome, "%+v", u.Drift)
			assert.Equal(t, "base\n", saidBy(t, b, "cat /srv/a"))
		})
	}
}
