package container_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// TestWhatIsHardToLookAtIsUndoneToo leaves what is dear to read, where nothing of it is to be read.
func TestWhatIsHardToLookAtIsUndoneToo(t *testing.T) {
	t.Parallel()
	s, b := layersStage(t, t.TempDir()), containertest.Start(t, withGNU(t))
	b.Put(t, "/srv", map[string]string{"a": "base\n"})
	before := containertest.Shows(t, b)
	e := s.entry(t)
	_, err := s.action.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "command": "truncate -s 20G /srv/sparse; echo end >>/srv/sparse"}), "")
	require.NoError(t, err)
	s.undid(t, e)
	assert.Equal(t, before, containertest.Shows(t, b))

	e = s.entry(t)
	deep := "mkdir -p /srv/" + strings.Repeat("d/", 500) + "; cd /srv/" + strings.Repeat("d/", 500) + "; mkdir -p " +
		strings.Repeat("d/", 600)
	_, err = s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": deep}), "")
	assert.Equal(t, activities.Unsuccessful, activities.TypeOf(err))
	require.ErrorContains(t, err, "nested deeper than 1000")
	s.undid(t, e)
	assert.Equal(t, before, containertest.Shows(t, b))
}
