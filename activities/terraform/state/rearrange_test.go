package state

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	earlierText = `{"version":4,"serial":3,"lineage":"l","outputs":{},"resources":[
		{"mode":"managed","type":"t","name":"a","provider":"p","instances":[{"attributes":{"id":"1"},"dependencies":["t.z"]}]},
		{"module":"module.m","mode":"managed","type":"t","name":"b","provider":"p","instances":[{"index_key":"k","attributes":{"id":"2"},"private":"x"}]},
		{"mode":"managed","type":"t","name":"c","provider":"p","instances":[{"index_key":0,"attributes":{"id":"3"}},{"index_key":1,"attributes":{"id":"4"}}]}]}`
	laterText = `{"version":4,"serial":7,"lineage":"l","outputs":{"n":{"value":12345678901234567890,"type":"number"}},"resources":[
		{"mode":"data","type":"t","name":"a","provider":"p","instances":[{"attributes":{"id":"1"}}]},
		{"mode":"managed","type":"t","name":"a","provider":"p","instances":[
			{"index_key":0,"attributes":{"id":"1"},"dependencies":["t.y"]},{"index_key":1,"attributes":{"id":"2"}},{"index_key":2,"attributes":{"id":"9"}}]},
		{"mode":"managed","type":"t","name":"c","provider":"p","instances":[{"index_key":1,"attributes":{"id":"3"}},{"index_key":2,"deposed":"d","attributes":{"id":"5"}},{"index_key":2,"attributes":{"id":"4"}}]}],
		"check_results":null}`
)

func TestStatesAreRearranged(t *testing.T) {
	t.Parallel()
	earlier, err := Parse([]byte(earlierText))
	require.NoError(t, err)
	later, err := Parse([]byte(laterText))
	require.NoError(t, err)
	assert.True(t, later.Holds("t.a[0]", earlier, "t.a"))
	assert.True(t, later.Holds("t.c[1]", earlier, "t.c[0]"))
	assert.False(t, later.Holds("t.c[1]", earlier, "t.c[1]"))
	assert.Equal(t, "9", later.IDOf("t.a[2]"))

	// A chain of moves, one into a module and one out of a count; what else there is stays.
	raw, err := later.Rearrange([]string{"t.a[2]"}, map[string]string{
		"t.a[0]": "t.a", "t.a[1]": `module.m.t.b["k"]`, "t.c[1]": "t.c[0]", "t.c[2]": "t.c[1]",
	}, earlier)
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"version":4,"serial":8,"lineage":"l","outputs":{"n":{"value":12345678901234567890,"type":"number"}},"resources":[
		{"mode":"data","type":"t","name":"a","provider":"p","instances":[{"attributes":{"id":"1"}}]},
		{"module":"module.m","mode":"managed","type":"t","name":"b","provider":"p","instances":[{"index_key":"k","attributes":{"id":"2"}}]},
		{"mode":"managed","type":"t","name":"a","provider":"p","instances":[{"attributes":{"id":"1"},"dependencies":["t.z"]}]},
		{"mode":"managed","type":"t","name":"c","provider":"p","instances":[
			{"index_key":0,"attributes":{"id":"3"}},{"index_key":1,"deposed":"d","attributes":{"id":"5"}},{"index_key":1,"attributes":{"id":"4"}}]}],
		"check_results":null}`, string(raw))
	assert.Contains(t, string(raw), "12345678901234567890")
	assert.Empty(t, later.Superseded(earlier))
	_, err = later.Rearrange(nil, map[string]string{"t.a[0]": "t.none"}, earlier)
	require.Error(t, err)
}

// A replacement that failed after it had made the new object leaves the old one deposed.
func TestSupersededObjectsBecomeCurrentAgain(t *testing.T) {
	t.Parallel()
	earlier, err := Parse(
		[]byte(`{"version":4,"serial":1,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"a","instances":[{"attributes":{"id":"1"}}]}]}`))
	require.NoError(t, err)
	later, err := Parse(
		[]byte(`{"version":4,"serial":2,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"a","instances":[
		{"deposed":"k","attributes":{"id":"1"}},{"deposed":"other","attributes":{"id":"0"}},{"status":"tainted","attributes":{"id":"2"}}]}]}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"t.a": "k"}, later.Superseded(earlier))
	raw, err := later.Rearrange(nil, nil, earlier)
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"version":4,"serial":3,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"a","instances":[
		{"attributes":{"id":"1"}},{"deposed":"other","attributes":{"id":"0"}},{"deposed":"k","status":"tainted","attributes":{"id":"2"}}]}]}`, string(raw))
	again, err := Parse(raw)
	require.NoError(t, err)
	assert.Empty(t, again.Superseded(earlier))
}
