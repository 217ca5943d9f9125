package terraform

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// rollBack undoes a step of a finished task, so that it can be done again.
func (b *bench) rollBack(e activities.Entry, want activities.Outcome) {
	b.Helper()
	u, err := b.action.Undo(b.ctx, e, activities.Decision{Redoable: true, Who: "someone", Why: "on second thoughts"})
	require.NoError(b, err)
	require.Equal(b, want, u.Outcome, "%v", u.Losses)
}

// redo applies the next generation of a step that was rolled back, through a gate.
func (b *bench) redo(of activities.Entry) (activities.Entry, activities.Result) {
	b.Helper()
	e, s := b.step(Params{})
	e.Redoes = of.Token
	change, err := b.action.Plan(b.ctx, e, s)
	require.NoError(b, err)
	r, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(b, err)
	return e, r
}

func TestRedoAppliesWhatWasAppliedThen(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	before := b.names()
	b.configure(second)
	e := b.apply(Params{})
	after, files := b.names(), objects(t, b.dir)
	b.rollBack(e, activities.Compensated)
	require.Equal(t, before, b.names())

	b.configure(`resource "fake_thing" "else" { name = "what someone has written into the folder since" }`)
	again, r := b.redo(e)
	assert.Equal(t, after, b.names(), "each object once")
	assert.NotEqual(t, files["added"], objects(t, b.dir)["added"], "it is another one")
	require.Len(t, r.Notes, 1)
	assert.Contains(t, r.Notes[0], "its objects are new")

	// The first generation stays undone, whoever asks; the second can be taken back like any other.
	_, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err))
	b.rollBack(again, activities.Compensated)
	assert.Equal(t, before, b.names())

	// The redo's own record serves the next one.
	third, _ := b.redo(again)
	assert.Equal(t, after, b.names())
	b.rollBack(third, activities.Compensated)
	assert.Equal(t, before, b.names())
}

func TestRedoOfAFirstApply(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	e := b.apply(Params{})
	b.rollBack(e, activities.Restored)
	require.NoFileExists(t, b.state())
	require.NoError(t, os.Remove(filepath.Join(b.dir, "conf", "main.tf")))
	again, _ := b.redo(e)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
	b.rollBack(again, activities.Restored)
	assert.Empty(t, b.names())
	assert.NoFileExists(t, b.state())
}

func TestRedoOnceTheRecordIsReleasedTakesTheFolder(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	e := b.apply(Params{})
	b.rollBack(e, activities.Restored)
	require.NoError(t, b.action.Release(b.ctx, e))
	b.configure(`resource "fake_thing" "b" { name = "b" }`)
	again, r := b.redo(e)
	assert.Equal(t, map[string]int{"b": 1}, b.names())
	assert.Contains(t, r.Notes[0], "is no longer kept")
	b.rollBack(again, activities.Restored)
}
