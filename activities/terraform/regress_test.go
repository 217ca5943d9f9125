package terraform

import (
	"fmt"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

const (
	twoThings = one + "\n" + `resource "fake_thing" "b" { name = "b" }`
	more      = twoThings + "\n" + `resource "fake_thing" "c" { name = "c" }`
)

// setState puts a text in place of the state; empty removes the file.
func (b *bench) setState(text string) {
	b.Helper()
	if text == "" {
		require.NoError(b, os.Remove(b.state()))
		return
	}
	require.NoError(b, os.WriteFile(b.state(), []byte(text), 0o600))
}

// plan plans the step and returns what would be shown at its gate.
func (b *bench) plan(e activities.Entry, s activities.Step) activities.Change {
	b.Helper()
	change, err := b.action.Plan(b.ctx, e, s)
	require.NoError(b, err)
	return change
}

// An apply to a state that has lost what was made since would make all of it again: a person is
// asked, in these words.
func TestApplyToAStateThatWentBackIsAsked(t *testing.T) {
	b := newBench(t, one)
	b.apply(Params{})
	older := b.stateText()
	b.configure(twoThings)
	b.apply(Params{})
	names := b.names()
	newer, err := state.Parse([]byte(b.stateText()))
	require.NoError(t, err)
	for _, c := range []struct{ name, state, want string }{
		{"older", older, "went back from serial "},
		{"missing", "", "is missing"},
		{"of another lineage", `{"version":4,"serial":9,"lineage":"other","outputs":{},"resources":[]}`,
			"has another lineage"},
		{"forked", fmt.Sprintf(`{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[]}`, newer.Serial,
			newer.Lineage), "has other contents than this worker left under serial"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.setState(string(newer.Raw))
			b.configure(more)
			approved, s := b.step(Params{})
			change := b.plan(approved, s)
			assert.False(t, change.Ask)
			assert.NotContains(t, change.Summary, "state")

			b.setState(c.state)
			_, err := b.action.Apply(b.ctx, approved, s, change.Digest)
			require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v", err)
			e, s := b.step(Params{})
			_, err = b.action.Apply(b.ctx, e, s, "")
			require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
			assert.ErrorContains(t, err, c.want)
			change = b.plan(e, s)
			assert.True(t, change.Ask, "it is asked whatever the task file says")
			assert.Contains(t, change.Summary, c.want)
			require.NotEmpty(t, change.Facts)
			assert.Contains(t, change.Facts[0], c.want)
			assert.Contains(t, change.Facts[0], fmt.Sprintf("serial %d", newer.Serial))
			assert.Equal(t, names, b.names(), "nothing was touched")
		})
	}

	// What a person has approved is done, and is what the worker knows from then on.
	b.setState("")
	e, s := b.step(Params{})
	_, err = b.action.Apply(b.ctx, e, s, b.plan(e, s).Digest)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 2, "b": 2, "c": 1}, b.names())
	assert.False(t, b.plan(b.step(Params{})).Ask)
}

// An undo works on the state that the step has left, or parks.
func TestUndoOnAStateThatWentBackIsDrift(t *testing.T) {
	for _, c := range []struct {
		name string
		// state is made of the texts of the state before the step and after it.
		state func(before, after string) string
		want  string
		// recovered: the state that the step left is put back when a person forces it, and the undo is
		// exact.
		recovered bool
	}{
		{"older", func(before, _ string) string { return before }, "went back from serial ", true},
		{"missing", func(string, string) string { return "" }, "is missing", true},
		{"of another lineage", func(string, string) string {
			return `{"version":4,"serial":9,"lineage":"other","outputs":{},"resources":[]}`
		}, "has another lineage", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, one)
			b.apply(Params{})
			before := b.stateText()
			b.configure(twoThings)
			e := b.apply(Params{})
			names := b.names()
			b.setState(c.state(before, b.stateText()))
			was, _ := os.ReadFile(b.state())

			o, err := b.action.Observe(b.ctx, e)
			require.NoError(t, err)
			assert.Equal(t, activities.Elsewise, o.State, o.Detail)
			u := b.undo(e)
			require.Equal(t, activities.Drifted, u.Outcome, "%v", u)
			assert.Contains(t, u.Drift.Diff, c.want)
			assert.Equal(t, o.Drift, u.Drift)
			assert.Equal(t, names, b.names(), "nothing was touched")
			now, _ := os.ReadFile(b.state())
			assert.Equal(t, was, now, "nor the state")

			u, err = b.action.Undo(b.ctx, e, activities.Decision{Force: u.Drift.Digest})
			require.NoError(t, err)
			if !c.recovered {
				return
			}
			assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
			assert.Equal(t, map[string]int{"a": 1}, b.names())
			assert.False(t, b.plan(b.step(Params{})).Ask, "what the undo left is known")
		})
	}
}

// A state that the worker itself has removed is not missing, and who makes one in its place is free
// to.
func TestAStateThatAnUndoHasRemovedIsNotMissing(t *testing.T) {
	b := newBench(t, one)
	b.undo(b.apply(Params{}))
	require.NoFileExists(t, b.state())
	assert.False(t, b.plan(b.step(Params{})).Ask)
	b.setState(`{"version":4,"serial":1,"lineage":"someone's","outputs":{},"resources":[]}`)
	assert.False(t, b.plan(b.step(Params{})).Ask)
}

func TestARemoteStateThatWentBack(t *testing.T) {
	b, server, p := remote(t, one)
	b.apply(p)
	older := server.state
	b.configure(twoThings + "\nterraform {\n  backend \"http\" {}\n}")
	e := b.apply(p)
	server.state = older
	change := b.plan(b.step(p))
	assert.True(t, change.Ask)
	assert.Contains(t, change.Summary, "went back from serial")
	u := b.undo(e)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Contains(t, u.Drift.Diff, "went back from serial")
	server.state = nil
	assert.Contains(t, b.plan(b.step(p)).Summary, "is missing")

	// The same folder with another backend has another state.
	elsewhere := httptest.NewServer(&stateServer{})
	t.Cleanup(elsewhere.Close)
	assert.False(t, b.plan(b.step(Params{Backend: map[string]string{"address": elsewhere.URL}})).Ask)
}

// A retry after an attempt that was killed applies what is missing to the state that the attempt
// has found, or to a later one.
func TestARetryOnAStateThatWentBackIsRefused(t *testing.T) {
	b := newBench(t, one)
	b.apply(Params{})
	older := b.stateText()
	b.configure(twoThings)
	b.apply(Params{})
	b.configure(slow)
	e, s := b.step(Params{})
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.kill(c)
	b.eventually("the end of the supervisor", func() bool { return !b.supervisor(e).IsAlive() })
	names := b.names()
	b.setState(older)
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	assert.ErrorContains(t, err, "went back from serial ")
	assert.Equal(t, names, b.names())
}
