package checkpointtest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/dockercommit"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/layers"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// testSeen rolls a container back whose program writes at each start: what that has written is
// nothing that the rollback has not brought back, and what is missing is seen, whether a helper can
// look into the new container or not.
func (s Subject) testSeen(t *testing.T, on setting) {
	const idle = "/bin/sleep 600"
	for name, helped := range map[string]bool{"with a helper": true, "by exports": false} {
		t.Run(name, func(t *testing.T) {
			plain, err := engine.Connect(on.host)
			require.NoError(t, err)
			dir := t.TempDir()
			records, err := journal.Open(filepath.Join(dir, "records"))
			require.NoError(t, err)
			t.Cleanup(func() { containertest.RemoveHome(t, on.Client, records.ID()) })
			family, err := lineage.Open(filepath.Join(dir, "lineage"), plain)
			require.NoError(t, err)
			mode := layers.Never
			if helped {
				mode = layers.Require
			}
			overlays := layers.New(mode, plain, family, helper.NewClient(sidecar.Starter(plain, records.ID())),
				filepath.Join(dir, "notes"))
			require.NoError(t, overlays.Prepare(t.Context()))
			layered := layers.NewEngine(overlays)
			require.Equal(t, helped, layered.CanLook())
			backend := dockercommit.New(layered, family)
			for begins, missing := range map[string][]string{
				idle: nil, "echo it >>/began; " + idle: nil, "echo again >>/began; " + idle: {"- /absent"},
			} {
				b := start(t, on, &dockertypes.Config{Image: on.image, Cmd: []string{"sh", "-c", begins}})
				was, token := b.Inspect(t), activities.NewToken(containertest.Random(), "it", 1)
				require.Eventually(t, func() bool { // its program has written
					now, err := backend.ReadManifest(t.Context(), token, was.ID, nil)
					return err == nil && (begins == idle || now["/began"].Size > 0)
				}, time.Minute, 10*time.Millisecond)
				at, err := backend.Take(t.Context(), token, was.ID)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, backend.Release(context.Background(), token)) })
				before, err := backend.ReadManifest(t.Context(), token, was.ID, nil)
				require.NoError(t, err)
				for _, line := range missing { // as if the checkpoint had lost it
					before[manifest.PathOf(line)] = manifest.Node{Path: manifest.PathOf(line)}
				}
				back, err := backend.RollBack(t.Context(), checkpoint.Rollback{
					Token: token, Turn: checkpoint.UndoTurn, Container: was, Checkpoint: at, Before: before,
				})
				require.NoError(t, err)
				assert.Equal(t, missing, back.Differs, begins)
				now := b.Inspect(t)
				assert.True(t, now.State.Running)
				assert.Equal(t, now.ID, back.ID)
			}
		})
	}
}
