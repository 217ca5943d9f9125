package task

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// Only a step whose host cannot name yet what it touches is asked about when it runs: that costs an
// activity. Until then it may touch anything.
func TestWhichStepsAreNamedLate(t *testing.T) {
	spec := activities.Spec{
		Name: "file.put", Params: json.RawMessage(`{"type": "object"}`), Preflights: true, Risk: activities.Low,
		Strategy: activities.Snapshot,
		Keys: []activities.Key{{Prefix: "file:", Param: "path", Path: true},
			{Prefix: "file:", Param: "paths.*", Path: true}},
		Reads: []string{"source", "sources.*"}, Names: []string{"backend.*"},
	}
	plain := spec
	plain.Name, plain.Preflights = "file.plain", false
	c := catalog()
	c.Specs = append(c.Specs, spec, plain)
	const first = "uses: file.write, with: {path: /srv/a, content: x}"
	for line, late := range map[string]bool{
		"uses: file.put, with: {path: '${{ steps.s0.outputs.path }}'}":                               true,
		"uses: file.put, with: {paths: [/srv/b, '/srv/${{ steps.s0.outputs.path }}']}":               true,
		"uses: file.put, with: {path: /srv/b, source: '${{ steps.s0.outputs.path }}'}":               true,
		"uses: file.put, with: {path: /srv/b, sources: [/a, '${{ steps.s0.outputs.path }}']}":        true,
		"uses: file.put, with: {path: /srv/b, content: '${{ steps.s0.outputs.path }}'}":              false,
		"uses: file.put, with: {path: /srv/b, backend: {a: b, c: 'x/${{ steps.s0.outputs.path }}'}}": true,
		"uses: file.put, with: {path: /srv/b, backend: {a: '${{ secrets.DB_PASSWORD }}'}}":           false,
		"uses: file.put, with: {path: /srv/b, source: /srv/c}":                                       false,
		"uses: file.plain, with: {path: '${{ steps.s0.outputs.path }}'}":                             false,
		"uses: container.exec": false,
	} {
		compiled, err := Compile(mustParse(t, stepsOf(first, line)), c)
		require.NoError(t, err)
		assert.False(t, compiled.Steps[0].NamedLate)
		assert.Equal(t, late, compiled.Steps[1].NamedLate, line)
		if late {
			assert.Nil(t, compiled.Steps[1].Keys, line)
		}
	}
}
