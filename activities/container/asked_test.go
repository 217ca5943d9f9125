package container_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// TestAnUndoByLayersAsksItsEngineOnce counts how often the engine has to describe the container:
// each time costs about what the removal of the layers does.
func TestAnUndoByLayersAsksItsEngineOnce(t *testing.T) {
	t.Parallel()
	testrun.NeedRoot(t, "layers over containers")
	b := containertest.Start(t)
	var inspected atomic.Int64
	socket, _ := watched(t, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/"+b.ID+"/json") {
			inspected.Add(1)
		}
	})
	state := t.TempDir()
	t.Cleanup(func() { containertest.RemoveLayers(t, state) })
	s := newStageAt(t, container.Config{State: state, Host: "unix://" + socket})
	before := containertest.Shows(t, b)
	e, _ := s.did(t, b, "echo changed >/srv/a")
	require.Positive(t, inspected.Swap(0))
	s.undid(t, e)
	assert.EqualValues(t, 1, inspected.Load())
	assert.Equal(t, before, containertest.Shows(t, b))
}
