package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
)

// personsFields are what only a person may say of a step, each with what an agent would gain by it.
var personsFields = map[string]string{
	"pivot":            `true`,    // nobody can undo what is before it
	"undo.drift":       `"force"`, // somebody else's newer work is overwritten, or left, without a question
	"undo.criticality": `"low"`,   // damage stands without a question
	"undo.within":      `"1h"`,    // a person is asked too late
	"undo.attempts":    `1`,       // a mishap that passes becomes a person's work
}

// pathsIn adds the paths of all values that fit a schema. The schema of a step is made of its Go
// type.
func pathsIn(s *jsonschema.Schema, path string, all map[string]bool) {
	switch {
	case len(s.Properties) > 0:
		for name, p := range s.Properties {
			pathsIn(p, strings.TrimPrefix(path+"."+name, "."), all)
		}
	case s.Items != nil:
		pathsIn(s.Items, path, all)
	case len(s.AnyOf) > 0:
		for _, form := range s.AnyOf {
			pathsIn(form, path, all)
		}
	default:
		all[path] = true
	}
}

// A field that is new is a person's until it is listed as one of an agent's, and has to be listed
// as either.
func TestEveryFieldOfAStepIsAnAgentsOrAPersons(t *testing.T) {
	written := map[string]bool{}
	pathsIn(objectSchema(reflect.TypeFor[step]()), "", written)
	listed := append(slices.Collect(maps.Keys(agentFields)), slices.Collect(maps.Keys(personsFields))...)
	require.ElementsMatch(t, slices.Collect(maps.Keys(written)), listed)
	tomorrow := &node{kind: object, fields: []field{{&node{kind: text, text: "undo"}, &node{kind: object, fields: []field{
		{&node{kind: text, text: "tomorrow"}, &node{kind: boolean, text: "true", source: "true"}},
	}}}}}
	require.Equal(t, "undo.tomorrow: true", describeReserved(tomorrow))
}

func TestAnAgentMayNotSayWhatIsAPersons(t *testing.T) {
	const written = `[{"id": "a", "uses": "file.write", "with": {"path": "/srv/a"}, %s}]`
	refused := map[string]string{}
	for path, value := range personsFields {
		outer, inner, isNested := strings.Cut(path, ".")
		if isNested {
			value = fmt.Sprintf(`{%q: %s}`, inner, value)
		}
		found := strings.Trim(personsFields[path], "{}")
		refused[fmt.Sprintf(`%q: %s`, outer, value)] = "steps[0]." + path + ": only a person may say this, found " + found +
			"; leave it out, or have a person write the step into the file of the session"
	}
	for _, mode := range []string{"none", "auto"} {
		refused[fmt.Sprintf(`"gate": %q`, mode)] = fmt.Sprintf("steps[0].gate: an agent may only say ask, found %q", mode)
		refused[fmt.Sprintf(`"gate": {"why": "so", "mode": %q}`,
			mode)] = fmt.Sprintf("steps[0].gate.mode: an agent may only say ask, found %q", mode)
	}
	for step, want := range refused {
		steps := fmt.Sprintf(written, step)
		_, err := compileAddition(t, steps, nil)
		require.ErrorContains(t, err, want, step)

		doc, err := Addition{Session: json.RawMessage(opened), Steps: json.RawMessage(steps), Redone: true}.Parse()
		require.NoError(t, err, "what a person has written is done again as it is")
		compiled, err := Compile(doc, catalog())
		require.NoError(t, err)
		require.NotEmpty(t, compiled.Steps[0].Reserved, step)
	}
}

func TestAnAgentMaySayTheRest(t *testing.T) {
	compiled, err := compileAddition(t, `[{
		"id": "a", "name": "a file", "uses": "file.write", "with": {"path": "/srv/a", "content": "pivot: true"}, "needs": [], "savepoint": "before",
		"timeout": "1m", "again": true, "retry": {"attempts": 2, "backoff": "1s", "max": "2s"}, "gate": {"mode": "ask", "why": "so", "timeout": "1h"},
		"check": [{"exists": "/srv/a"}, {"json": {"at": "", "equals": {"pivot": true}}}, {"command": ["grep", "a", "{path}"], "when": "live"}], "on_failure": "continue"
	}, {"id": "b", "uses": "file.write", "with": {"path": "/srv/b"}, "gate": "ask", "on_failure": {"unwind_to": "before", "times": 2}, "undo": {}}]`, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"", ""}, []string{compiled.Steps[0].Reserved, compiled.Steps[1].Reserved})
	require.Equal(t, []GateMode{GateAsk, GateAsk}, []GateMode{compiled.Steps[0].Gate.Mode, compiled.Steps[1].Gate.Mode})
}

// A task file and the first steps of a session are a person's.
func TestAPersonMaySayAll(t *testing.T) {
	const step = "\nsteps:\n- {id: a, uses: file.write, with: {path: /srv/a}, pivot: true, gate: none, undo: {drift: " +
		"force}}\n"
	require.Empty(t, mustCompile(t, "name: t"+step).Steps[0].Reserved)
	require.Equal(t, "pivot: true", mustCompile(t, "name: t\nsession: {}"+step).Steps[0].Reserved)
}
