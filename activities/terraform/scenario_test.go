package terraform

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

const first = `
resource "fake_thing" "same" { name = "same" }
resource "fake_thing" "changed" { 
  name = "changed"
  content = "one" 
}
resource "fake_thing" "replaced" { name = "replaced" }
resource "fake_thing" "removed" { name = "removed" }
output "release" { value = "1" }
`

const second = `
resource "fake_thing" "same" { name = "same" }
resource "fake_thing" "changed" { 
  name = "changed"
  content = "two" 
}
resource "fake_thing" "replaced" { name = "replaced-anew" }
resource "fake_thing" "added" { name = "added" }
output "release" { value = "2" }
`

func TestBackToTheConfigurationFromBefore(t *testing.T) {
	b := newBench(t, first)
	v1 := b.apply(Params{})
	before, files := b.names(), objects(t, b.dir)
	b.configure(second)
	e, s := b.step(Params{})

	change, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	assert.Equal(t, "terraform apply "+filepath.Join(b.dir, "conf")+": 1 to add, 1 to change, 1 to replace, 1 to destroy",
		change.Summary)
	assert.True(t, change.Ask, "a plan that destroys is always asked")
	assert.Equal(t, activities.Irreversible, change.Strategy)
	assert.Equal(t, []string{
		"fake_thing.removed: the data inside a replaced or destroyed object does not come back",
		"fake_thing.replaced: the data inside a replaced or destroyed object does not come back",
	}, change.Losses)
	assert.Contains(t, change.Diff, "fake_thing.replaced must be replaced")

	result, err := b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(t, err)
	outputs, err := json.Marshal(result.Outputs)
	require.NoError(t, err)
	assert.JSONEq(t, `{"added": 2, "changed": 1, "destroyed": 2, "release": "2"}`, string(outputs))
	assert.Equal(t, map[string]int{"same": 1, "changed": 1, "replaced-anew": 1, "added": 1}, b.names())

	u := b.undo(e)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Len(t, u.Losses, 2, "%v", u.Losses)
	assert.Contains(t, u.Losses[0]+u.Losses[1], "fake_thing.removed")
	assert.Contains(t, u.Losses[0]+u.Losses[1], "fake_thing.replaced")
	assert.Equal(t, before, b.names(), "no orphan, nothing twice")
	assert.Equal(t, files["same"], objects(t, b.dir)["same"])
	assert.Equal(t, files["changed"], objects(t, b.dir)["changed"])

	// Someone has put the old configuration back: the state from after the undo is known to come from
	// it, and the first step can be undone still, for its objects are known by the addresses; but it
	// is no longer as it left it.
	b.configure(first)
	u = b.undo(v1)
	require.Equal(t, activities.Drifted, u.Outcome)
	u, err = b.action.Undo(b.ctx, v1, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, u.Outcome)
	assert.Empty(t, b.names())
	assert.NoFileExists(t, b.state())
}

// A step between two that were undone can be undone as well: what an undo leaves is known like what
// a step leaves.
func TestUndoLeavesAKnownConfiguration(t *testing.T) {
	b := newBench(t, `resource "fake_thing" "a" { name = "a" }`)
	b.apply(Params{})
	b.configure(`resource "fake_thing" "b" { name = "b" }`)
	assert.Equal(t, activities.Compensated, b.undo(b.apply(Params{})).Outcome)
	assert.Equal(t, activities.Compensated, b.undo(b.apply(Params{})).Outcome)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
}

func TestCreationThatFails(t *testing.T) {
	for _, c := range []struct {
		fail    string
		left    map[string]int
		outcome activities.Outcome
	}{
		{"tainted", map[string]int{}, activities.Restored},
		{"after", map[string]int{"bad": 1}, activities.Residue},
		{"before", map[string]int{}, activities.Residue}, // the provider does not tell it from the one above
	} {
		t.Run(c.fail, func(t *testing.T) {
			b := newBench(t, `
resource "fake_thing" "good" { name = "good" }
resource "fake_thing" "bad" {
  name       = "bad"
  fail       = "`+c.fail+`"
  depends_on = [fake_thing.good]
}`)
			e, s := b.step(Params{})
			_, err := b.action.Apply(b.ctx, e, s, "")
			require.Error(t, err)
			assert.Contains(t, err.Error(), "fake_thing.bad: ")
			u := b.undo(e)
			assert.Equal(t, c.outcome, u.Outcome, "%v", u.Losses)
			if c.outcome == activities.Residue {
				require.Len(t, u.Losses, 1)
				assert.Contains(t, u.Losses[0], "fake_thing.bad: its creation failed")
			}
			assert.Equal(t, c.left, b.names())
			assert.NoFileExists(t, b.state())
			assert.Equal(t, u, b.undo(e), "the outcome is kept")
		})
	}
}

const slow = `
resource "fake_thing" "quick" {
  count = 2
  name  = "quick${count.index}"
}
resource "fake_thing" "slow" {
  name       = "slow"
  delay_ms   = 1500
  depends_on = [fake_thing.quick]
}
resource "fake_thing" "never" {
  name       = "never"
  depends_on = [fake_thing.slow]
}`

func TestKilledWorker(t *testing.T) {
	b := newBench(t, slow)
	e, s := b.step(Params{})
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.kill(c)
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Empty(t, b.names(), "no orphan")
	assert.NoFileExists(t, b.state())
}

func TestKilledWorkerIsRetried(t *testing.T) {
	b := newBench(t, slow)
	e, s := b.step(Params{})
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.kill(c)
	r, err := b.action.Apply(b.ctx, e, s, "")
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"quick0": 1, "quick1": 1, "slow": 1, "never": 1}, b.names(), "nothing twice")
	assert.NotEmpty(t, r.Notes)
	assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.Empty(t, b.names())
}

func TestCancelledApply(t *testing.T) {
	b := newBench(t, slow)
	e, s := b.step(Params{})
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := b.action.Apply(ctx, e, s, "")
		done <- err
	}()
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Equal(t, map[string]int{"quick0": 1, "quick1": 1, "slow": 1}, b.names(),
		"what was in flight is finished, nothing more begun")
	assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.Empty(t, b.names())
}

func TestKilledTerraform(t *testing.T) {
	b := newBench(t, slow)
	e, s := b.step(Params{})
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.killRun(e)
	require.Error(t, c.Wait())

	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "fake_thing.slow")
	u := b.undo(e)
	assert.Equal(t, activities.Unknown, u.Outcome)
	assert.Equal(t,
		[]string{"fake_thing.slow: it was in flight when terraform was killed; whether it was made cannot be known"},
		u.Losses)
	assert.Equal(t, map[string]int{"slow": 1}, b.names(), "what was known to be made is gone, though no state had it")
	assert.Equal(t, activities.Unknown, b.undo(e).Outcome, "a further undo knows no more")
}

func TestStateThatWasNotSaved(t *testing.T) {
	b := newBench(t, `
resource "fake_thing" "a" { name = "a" }
resource "fake_thing" "b" { 
  name = "b"
  fail = "tainted"
}`)
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Error(t, err)
	raw, err := os.ReadFile(b.state())
	require.NoError(t, err)
	tok, err := b.action.(*applyAction).token(e)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(workspace.Folder(tok, "forward"), salvage.UnsavedName), raw, 0o600))
	require.NoError(t, os.Remove(b.state()))
	u := b.undo(e)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Empty(t, b.names())
	assert.NoFileExists(t, b.state())
}

func TestLostState(t *testing.T) {
	b := newBench(t, first)
	e := b.apply(Params{})
	require.NoError(t, os.Remove(b.state()))
	u := b.undo(e)
	require.Equal(t, activities.Drifted, u.Outcome)
	u, err := b.action.Undo(b.ctx, e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	assert.Empty(t, b.names())
	assert.NoFileExists(t, b.state())
}

// Someone changes an object behind terraform's back: no state knows of it, a refresh sees it.
func TestDriftOfAnObject(t *testing.T) {
	b := newBench(t, first)
	b.apply(Params{})
	b.configure(first + `resource "fake_thing" "added" { name = "added" }`)
	e := b.apply(Params{})
	changed := objects(t, b.dir)["changed"][0]
	require.NoError(t, os.WriteFile(changed, []byte(`{"name":"changed","content":"by hand"}`), 0o644))

	u := b.undo(e)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Equal(t, "! fake_thing.changed is no longer as the state says", u.Drift.Diff)
	assert.Equal(t, 1, b.names()["added"], "nothing was touched")
	o, err := b.action.Observe(b.ctx, e)
	require.NoError(t, err)
	assert.Equal(t, activities.Elsewise, o.State)
	assert.Equal(t, u.Drift.Digest, o.Drift.Digest)

	require.NoError(t, os.WriteFile(changed, []byte(`{"name":"changed","content":"by hand again"}`), 0o644))
	again, err := b.action.Undo(b.ctx, e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, again.Outcome, "a force is for the drift that was shown")

	u, err = b.action.Undo(b.ctx, e, activities.Decision{Force: again.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
	raw, err := os.ReadFile(changed)
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"changed","content":"one"}`, string(raw))
	assert.Zero(t, b.names()["added"])
}
