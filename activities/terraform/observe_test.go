package terraform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// sees probes a step, and requires that this touches neither the objects nor the state.
func (b *bench) sees(e activities.Entry, want activities.State) {
	b.Helper()
	names, state := b.names(), b.stateText()
	o, err := b.action.Observe(b.ctx, e)
	require.NoError(b, err)
	require.Equal(b, want, o.State, o.Detail)
	assert.Equal(b, names, b.names())
	assert.Equal(b, state, b.stateText())
}

func (b *bench) stateText() string {
	b.Helper()
	raw, err := os.ReadFile(b.state())
	if !os.IsNotExist(err) {
		require.NoError(b, err)
	}
	return string(raw)
}

func TestProbeOfAForwardThatNeverBegan(t *testing.T) {
	b := newBench(t, first)
	e, s := b.step(Params{})
	b.sees(e, activities.AsBefore)
	_, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	b.sees(e, activities.AsBefore)
	require.Equal(t, activities.Nothing, b.undo(e).Outcome)
	b.sees(e, activities.AsBefore)
}

func TestProbeOfAReleasedStepKnowsNothing(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	kept := b.apply(Params{})
	require.NoError(t, b.action.Release(b.ctx, kept))
	b.sees(kept, activities.Unseen)
	b.configure(`
resource "fake_thing" "a" { name = "a" }
resource "fake_thing" "b" { name = "b" }`)
	undone := b.apply(Params{})
	b.sees(undone, activities.AsLeft)
	b.undo(undone)
	b.sees(undone, activities.AsBefore)
	require.NoError(t, b.action.Release(b.ctx, undone))
	b.sees(undone, activities.Unseen)
}

// The worker dies, and terraform goes on to its end: nobody has written down what came of it.
func TestProbeOfAForwardWhoseWorkerDied(t *testing.T) {
	t.Run("it happened", func(t *testing.T) {
		b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
		e, s := b.step(Params{})
		c := b.worker(e, s, breakVar+"=kill:terraform.apply:applied")
		require.Error(t, c.Wait())
		b.sees(e, activities.AsLeft)
		b.sees(e, activities.AsLeft)
		r, err := b.action.Apply(b.ctx, e, s, "")
		require.NoError(t, err)
		assert.Equal(t, []string{"the result of an earlier attempt"}, r.Notes)
		assert.Equal(t, map[string]int{"a": 1}, b.names())
	})
	t.Run("it did not", func(t *testing.T) {
		b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
		e, s := b.step(Params{})
		c := b.worker(e, s, breakVar+"=kill:terraform.apply:recorded")
		require.Error(t, c.Wait())
		b.sees(e, activities.AsBefore)
		assert.Equal(t, activities.Nothing, b.undo(e).Outcome)
	})
	t.Run("in the midst of it", func(t *testing.T) {
		b := newBench(t, slow)
		e, s := b.step(Params{})
		c := b.worker(e, s)
		b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
		b.kill(c)
		o, err := b.action.Observe(b.ctx, e) // waits until terraform has saved its state
		require.NoError(t, err)
		assert.Equal(t, activities.Unseen, o.State, o.Detail)
		assert.Equal(t, "the step has not finished", o.Detail)
		assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	})
	t.Run("terraform was killed too", func(t *testing.T) {
		b := newBench(t, slow)
		e, s := b.step(Params{})
		c := b.worker(e, s)
		b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
		b.killRun(e)
		require.Error(t, c.Wait())
		o, err := b.action.Observe(b.ctx, e)
		require.NoError(t, err)
		assert.Equal(t, activities.Unseen, o.State, o.Detail)
		assert.Contains(t, o.Detail, "terraform was killed while it made fake_thing.slow")
		assert.Equal(t, activities.Unknown, b.undo(e).Outcome)
	})
}

// A run that only mends the state, and ends well, is not the step's end.
func TestAStateThatWasPushedIsNotTheEnd(t *testing.T) {
	b := newBench(t, `
resource "fake_thing" "a" { name = "a" }
resource "fake_thing" "b" {
  name       = "b"
  fail       = "tainted"
  depends_on = [fake_thing.a]
}`)
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err)
	a := b.action.(*applyAction)
	tok, err := a.token(e)
	require.NoError(t, err)
	require.NoError(t, os.Rename(b.state(), filepath.Join(workspace.Folder(tok, "forward"), salvage.UnsavedName)))
	b.sees(e, activities.Unseen)

	// A second attempt pushes the state and dies.
	_, c, _, err := a.records.Read(b.ctx, tok)
	require.NoError(t, err)
	unsaved, err := salvage.MoveUnsaved(tok)
	require.NoError(t, err)
	ws, err := a.openWorkspace(b.ctx, e, "forward", c.Forward, 0)
	require.NoError(t, err)
	require.NoError(t, salvage.PushUnsaved(b.ctx, ws, unsaved))
	b.sees(e, activities.Unseen)
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err, "b is still to be made, and fails again")
	var v any
	found, err := tok.Read(journal.Applied, &v)
	require.NoError(t, err)
	assert.False(t, found)
	assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.Empty(t, b.names())
}
