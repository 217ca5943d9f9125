package checkpointtest

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/dockercommit"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/layers"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// open makes the backend on an engine, and the engine that knows of its layers.
func (s Subject) open(t *testing.T, on setting) (checkpoint.Backend, engine.Client) {
	t.Helper()
	plain, err := engine.Connect(on.host)
	require.NoError(t, err)
	dir := t.TempDir()
	records, err := journal.Open(filepath.Join(dir, "records"))
	require.NoError(t, err)
	t.Cleanup(func() { containertest.RemoveHome(t, on.Client, records.ID()) })
	family, err := lineage.Open(filepath.Join(dir, "lineage"), plain)
	require.NoError(t, err)
	overlays := layers.New(layers.Auto, plain, family, helper.NewClient(sidecar.Starter(plain, records.ID())),
		filepath.Join(dir, "notes"))
	layered := layers.NewEngine(overlays)
	if s.Layers {
		return overlays, layered
	}
	return dockercommit.New(layered, family), layered
}

// testContract calls a backend as a step, its undo and its redo do, each call twice.
func (s Subject) testContract(t *testing.T, on setting) {
	b := start(t, on, &dockertypes.Config{Image: on.image})
	backend, e := s.open(t, on)
	ctx, token, ignore := t.Context(), activities.NewToken(containertest.Random(), "it", 1), []string{"/tmp"}
	was := b.Inspect(t)

	at, err := backend.Take(ctx, token, was.ID)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, backend.Release(context.Background(), token)) })
	again, err := backend.Take(ctx, token, was.ID)
	require.NoError(t, err)
	require.Equal(t, at, again)
	before, err := backend.ReadManifest(ctx, token, was.ID, ignore)
	require.NoError(t, err)
	assert.Equal(t, backend.Traits().Differential, len(before) == 0)

	run := func(in string, c command.Command) (int, error) {
		return command.Run(ctx, e, in, c, io.Discard, io.Discard)
	}
	has := func(name string) bool { // an engine itself does not know of layers
		exit, err := run(b.Inspect(t).ID, command.Command{Argv: []string{"cat", name}})
		require.NoError(t, err)
		return exit == 0
	}
	sh := func(script string) command.Command { return command.Command{Argv: []string{"sh", "-c", script}} }
	c, err := backend.Enter(ctx, token, was, sh("echo one >/one; /bin/sleep 600 >/dev/null 2>&1 &").Marked(token))
	require.NoError(t, err)
	exit, err := run(was.ID, c)
	require.NoError(t, err)
	require.Zero(t, exit)
	left, _, err := backend.EndAndRead(ctx, token, was.ID, ignore) // with the image's shell it may find none to end
	require.NoError(t, err)
	_, ended, err := backend.EndAndRead(ctx, token, was.ID, ignore)
	require.NoError(t, err)
	assert.False(t, ended)
	after, err := backend.ReadManifest(ctx, token, was.ID, ignore)
	require.NoError(t, err)
	require.Contains(t, before.Diff(after), "+ /one")
	assert.Empty(t, after.Diff(left))

	undo := checkpoint.Rollback{
		Token: token, Turn: checkpoint.UndoTurn, Container: was, Checkpoint: at, Before: before, Ignore: ignore,
		Keep: after.Digest(),
	}
	for _, begun := range []bool{false, true} {
		has, err := backend.HasBegun(ctx, undo)
		require.NoError(t, err)
		assert.Equal(t, begun, has)
		_, err = backend.RollBack(ctx, undo)
		require.NoError(t, err)
	}
	back, err := backend.RollBack(ctx, undo)
	require.NoError(t, err)
	assert.Empty(t, back.Differs)
	assert.Equal(t, b.Inspect(t).ID, back.ID)
	assert.NotEqual(t, activities.Residue, backend.Report(was, undo, back).Outcome)
	assert.False(t, has("/one"))

	c.Argv = sh("echo late >/late").Argv
	exit, err = run(was.ID, c) // whoever has entered before does no more
	assert.True(t, err != nil || exit != 0)
	assert.False(t, has("/late"))
	late := undo
	late.Turn = "attempt-2"
	_, err = backend.RollBack(ctx, late)
	assert.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)

	salvage, err := backend.FindSalvage(ctx, undo)
	require.NoError(t, err)
	require.NotNil(t, salvage)
	assert.Equal(t, after.Digest(), salvage.After)
	other, now := activities.NewToken(containertest.Random(), "it", 1), b.Inspect(t)
	_, err = backend.Take(ctx, other, now.ID)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, backend.Release(context.Background(), other)) })
	redo := checkpoint.Rollback{
		Token: other, Turn: checkpoint.RedoTurn, Container: now, Checkpoint: salvage.Image, Before: after, Ignore: ignore,
		Exactly: true,
	}
	for range 2 {
		_, err = backend.RollBack(ctx, redo)
		require.NoError(t, err)
	}
	assert.True(t, has("/one"))

	for range 2 {
		require.NoError(t, backend.Drop(ctx, token, was.ID))
		require.NoError(t, backend.Release(ctx, token))
		assert.Zero(t, backend.Bytes(token))
	}
	_, err = backend.FindSalvage(ctx, checkpoint.Rollback{Token: token, Turn: checkpoint.ResetTurn, Container: was})
	assert.NoError(t, err)
}
