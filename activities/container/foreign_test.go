package container_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestWhatIsCopiedIntoAContainerBelowItsLayersIsToldAndKept(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t)
	b.Run(t, "mkdir -p /srv; echo base >/srv/a; echo base >/srv/b; echo base >/srv/c")
	first, _ := s.did(t, b, "echo step >/srv/a")
	second, _ := s.did(t, b, "echo step >/srv/c")
	copied := map[string]string{"a": "their a\n", "b": "their b\n"}
	b.Put(t, "/srv", copied)
	s.undid(t, second)

	u, err := s.action.Undo(t.Context(), first, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Contains(t, u.Drift.Diff, "~ /srv/a (")
	u, err = s.action.Undo(t.Context(), first, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Residue, u.Outcome)
	assert.Equal(t, "~ /srv/a (changed)", u.Losses[0])
	assert.Equal(t, "their a\ntheir b\nbase\n", saidBy(t, b, "cat /srv/a /srv/b /srv/c"))

	third, _ := s.did(t, b, "echo step >/srv/a; echo step >/srv/c")
	b.Put(t, "/srv", map[string]string{"a": "operator again\n"})
	notes := s.commit(t, third)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "somebody else has changed /srv/a in its own filesystem")
	assert.Equal(t, "operator again\nstep\n", saidBy(t, b, "cat /srv/a /srv/c"))
	u, err = s.action.Undo(t.Context(), third, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Drifted, u.Outcome)
}

func TestWhatAServerOfACommittedStepStillWritesIsOwed(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t))
	b.Run(t, "mkdir -p /srv")
	e, _ := s.did(t, b,
		"(setsid sh -c 'echo 1 >/srv/log; echo 1 >/srv/count; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; "+
			"echo 2 >/srv/log; echo 2 >/srv/count; touch /dev/shm/gone; exec sleep 599' >/dev/null 2>&1 </dev/null &); while "+
			"[ ! -e /srv/count ]; do :; done")
	notes := s.commit(t, e)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "what steps have left running (sh -c echo 1 >/srv/log")
	b.Run(t, "touch /dev/shm/go; while [ ! -e /dev/shm/gone ]; do sleep 0.01; done")
	b.Restart(t)
	require.Equal(t, "1\n1\n", saidBy(t, b, "cat /srv/log /srv/count"), "no worker runs")
	b.Run(t, "echo operator >/srv/count")
	s.did(t, b, "true")
	require.Eventually(t, func() bool { return saidBy(t, b, "cat /srv/log") == "2\n" }, time.Minute, 20*time.Millisecond)
	assert.Equal(t, "operator\n", saidBy(t, b, "cat /srv/count"))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Drifted, u.Outcome)
}
