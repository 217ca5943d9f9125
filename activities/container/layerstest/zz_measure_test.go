package layerstest

import (
	"context"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/sidecar"
)

func TestMeasure(t *testing.T) {
	c := containertest.Docker(t)
	home := containertest.Random()
	t.Cleanup(func() { containertest.RemoveHome(t, containertest.Docker(containertest.Outliving(t)), home) })
	began := time.Now()
	ref, err := sidecar.Ref()
	require.NoError(t, err)
	t.Log("digest", time.Since(began))
	for range 3 {
		_, _ = c.ImageRemove(context.Background(), ref, image.RemoveOptions{})
		for _, what := range []string{"with the image", "only the sidecar", "only the sidecar"} {
			h := helper.ClientOf(sidecar.Starter(c, home))
			began = time.Now()
			_, err := h.Ask(t.Context(), helper.Request{Op: helper.Probe})
			require.NoError(t, err)
			t.Log(what, time.Since(began))
			began = time.Now()
			_, err = h.Ask(t.Context(), helper.Request{Op: helper.List})
			require.NoError(t, err)
			t.Log("asked again", time.Since(began))
			h.Close()
			require.Eventually(t, func() bool { return len(containertest.Sidecars(t, c, home)) == 0 }, time.Minute, 20*time.Millisecond)
		}
	}
	i, err := c.ImageInspect(t.Context(), ref)
	require.NoError(t, err)
	t.Log(i.Size)
}
