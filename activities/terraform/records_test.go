package terraform

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// listed is what the journal tells of its only token.
func (b *bench) listed() activities.Record {
	b.Helper()
	records, problems, err := b.world.Records.Records(b.ctx)
	require.NoError(b, err)
	require.Empty(b, problems)
	require.Len(b, records, 1)
	return records[0]
}

func TestRecordsTellWhoseTheyAre(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	owner := activities.Owner{Workflow: "task", Run: "run"}
	e, s := b.step(Params{})
	_, err := b.action.Apply(activities.WithOwner(b.ctx, owner), e, s, "")
	require.NoError(t, err)
	r := b.listed()
	assert.Equal(t, e, r.Entry)
	assert.Equal(t, owner, r.Owner)
	assert.Equal(t, activities.RecordOpen, r.State)
	assert.Positive(t, r.Bytes)

	require.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.Equal(t, activities.RecordUndone, b.listed().State)
	held := b.listed().Bytes
	require.NoError(t, b.action.Release(b.ctx, e))
	assert.Equal(t, activities.RecordReleased, b.listed().State)
	assert.Less(t, b.listed().Bytes, held)
}

func TestReleaseLeavesNothingOfAPlanThatWasShown(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	e, s := b.step(Params{})
	_, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	require.NoError(t, b.action.Release(b.ctx, e))
	tok, err := b.action.(*applyAction).token(e)
	require.NoError(t, err)
	left, err := filepath.Glob(filepath.Join(tok.Dir(), "*"))
	require.NoError(t, err)
	var names []string
	for _, path := range left {
		names = append(names, filepath.Base(path))
	}
	assert.Equal(t, []string{"fate", "hold-1", "hold-1-spare", "lock", "released"}, names)
}
