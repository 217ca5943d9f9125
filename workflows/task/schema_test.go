package task

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// What the format says of a field that is left out is what Compile does.
func TestDefaultsAreAsDocumented(t *testing.T) {
	const bare = "name: t\nsteps:\n- {id: a, uses: file.write, with: {path: /srv/a}}\n"
	document, written := map[string]any{}, map[string]any{"id": "a", "uses": "file.write",
		"with": map[string]any{"path": "/srv/a"}}
	fill := func(into map[string]any, of reflect.Type) {
		for _, f := range propertiesOf(of) {
			if f.preset != "" {
				into[f.name] = presetJSON(f.preset)
			}
		}
	}
	retries, undoing := map[string]any{}, map[string]any{}
	fill(document, reflect.TypeFor[file]())
	fill(written, reflect.TypeFor[step]())
	fill(retries, reflect.TypeFor[retry]())
	fill(undoing, reflect.TypeFor[undo]())
	written["retry"], written["undo"], document["name"], document["steps"] = retries, undoing, "t", []any{written}
	src, err := json.Marshal(document)
	require.NoError(t, err)
	require.Equal(t, mustCompile(t, bare), mustCompile(t, string(src)))
}

// The published schema is the one that the code makes.
func TestSchemaIsPublished(t *testing.T) {
	schema, err := Schema(nil)
	require.NoError(t, err)
	raw, err := json.MarshalIndent(schema, "", "  ")
	require.NoError(t, err)
	golden(t, "schema.json", string(raw)+"\n")
}

func validator(t *testing.T, specs []activities.Spec) *jsonschema.Resolved {
	t.Helper()
	schema, err := Schema(specs)
	require.NoError(t, err)
	resolved, err := schema.Resolve(nil)
	require.NoError(t, err)
	return resolved
}

// beyond are the refused files that fit the schema: what is wrong with them lies in what refers to
// what, in lengths as bytes, or in the writing and not in the document.
var beyond = map[string]bool{
	"aliases": true, "check-lasts-too-long": true, "check-waits-too-long": true, "deep": true, "duplicate-ids": true, "duplicate-keys": true,
	"expressions": true, "groups-values": true, "inline-too-large": true,
	"json-numbers": true, "key-too-long": true, "needs-cycle": true, "needs-cycle-by-order": true, "needs-later": true,
	"numbers":    true,
	"references": true, "savepoints": true, "secret-for-a-number": true, "secret-not-allowed": true, "steps-empty": true,
	"tags": true, "two-documents": true, "unknown-output": true,
	"var-of-wrong-type": true, "vars-too-large": true,
}

// The schema and the parser agree: what the parser takes fits the schema, and what does not fit is
// refused. What the parser refuses fits only where a schema cannot tell.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema, base := validator(t, specs()), validator(t, nil)
	for name, src := range accepted(t) {
		instance := instanceOf(t, src)
		require.NoError(t, schema.Validate(instance), name)
		require.NoError(t, base.Validate(instance), name)
	}
	files, err := filepath.Glob("testdata/refused/*.yml")
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		var unread Problems
		root := readSource(src, &collector{problems: &unread})
		if len(unread) > 0 {
			continue // no document, so nothing for a schema
		}
		err = schema.Validate(root.value())
		if beyond[name] {
			require.NoError(t, err, name)
		} else {
			require.Error(t, err, name)
		}
		if _, parsed := Parse(name, src); parsed == nil {
			require.NoError(t, base.Validate(root.value()), name)
		}
	}
}

// One change at a time to a good document: schema and parser say the same of each.
func TestSchemaAgreesOnEachField(t *testing.T) {
	schema := validator(t, specs())
	for field, values := range map[string]struct{ good, bad []string }{
		"id": {[]string{`"a"`, `"a-b_9"`}, []string{`""`, `"A"`, `"-a"`, `3`, `null`, `"a b"`}},
		"name": {[]string{`"x"`, `"é ${{ vars.v }}"`},
			[]string{`""`, `"  "`, `"a\nb"`, `["x"]`, `"` + strings.Repeat("x", 201) + `"`}},
		"needs": {[]string{`[]`, `["z"]`}, []string{`"z"`, `["z","z"]`, `[1]`, `["Z"]`, `null`}},
		"gate": {[]string{`"ask"`, `"none"`, `{}`, `{"mode":"auto","timeout":"3d"}`, `{"why":"x"}`},
			[]string{`"open"`, `true`, `{"mode":"x"}`, `{"limit":"3d"}`, `{"why":""}`, `[]`}},
		"retry": {[]string{`{}`, `{"attempts":1}`, `{"attempts":3.0,"backoff":"1s","max":"1m"}`},
			[]string{`{"attempts":0}`, `{"attempts":1.5}`, `{"attempts":"3"}`, `{"attempts":1001}`, `{"backof":"1s"}`, `3`}},
		"timeout": {[]string{`"30s"`, `"1d2h"`}, []string{`"0s"`, `"1.5h"`, `30`, `""`, `"soon"`, `"${{ vars.v }}"`}},
		"on":      {[]string{`"h"`, `"build-7.example"`, `"${{ vars.v }}"`}, []string{`""`, `"two words"`, `7`, `"-h"`}},
		"undo": {[]string{`{}`, `{"within":"2h","drift":"skip"}`, `{"attempts":1000,"criticality":"low"}`,
			`{"criticality":"normal"}`},
			[]string{`{"drift":"never"}`, `{"attempt":"1s"}`, `"ask"`, `{"attempts":0}`, `{"attempts":1001}`, `{"attempts":"3"}`,
				`{"criticality":"high"}`}},
		"on_failure": {
			[]string{`"unwind"`, `"rollback_step"`, `"continue"`, `"ask"`, `{"unwind_to":"start"}`,
				`{"unwind_to":"start","times":100}`},
			[]string{`"unwind_to"`, `"Unwind"`, `""`, `null`, `true`, `[]`, `{}`, `{"times":2}`, `{"unwind_to":"Start"}`,
				`{"unwind_to":3}`, `{"unwind_to":"start","times":0}`, `{"unwind_to":"start","times":101}`,
				`{"unwind_to":"start","times":1.5}`, `{"unwind_to":"start","time":1}`},
		},
		"savepoint": {[]string{`"a"`, `"a-b_9"`}, []string{`""`, `"A"`, `3`, `null`, `"a b"`, `"${{ vars.v }}"`}},
		"pivot":     {[]string{`true`, `false`}, []string{`"true"`, `1`, `null`, `"${{ vars.v }}"`}},
		"check": {
			[]string{`[]`, `[{"command":["a","${{ vars.v }}"]}]`, `[{"json":{}}]`,
				`[{"json":{"file":"f","at":"/a","equals":null}}]`, `[{"exists":"x","when":"live"}]`, `[{"exists":{"path":"x"}}]`,
				`[{"json":{"at":""}}]`},
			[]string{`{}`, `[{}]`, `[{"command":"a"}]`, `[{"command":[]}]`, `[{"command":[""]}]`, `[{"command":["a",1]}]`,
				`[{"json":{"at":"a"}}]`, `[{"exists":""}]`, `[{"exists":{"file":"x"}}]`, `[{"exists":"x","json":{}}]`,
				`[{"exists":"x","when":"now"}]`, `[{"when":"live"}]`},
		},
		"uses": {[]string{`"stripe.customer.create"`}, []string{`"stripe"`, `"stripe.customer.make"`, `3`}},
		"with": {
			[]string{`{}`, `{"email":"a"}`, `{"email":"${{ steps.z.outputs.id }}"}`, `{"metadata":"${{ steps.z.outputs.id }}"}`,
				`{"metadata":{"a":"b"}}`},
			[]string{`{"mail":"a"}`, `{"email":3}`, `{"email":null}`, `{"metadata":{"a":1}}`, `{"metadata":"x"}`, `[]`},
		},
		"else": {nil, []string{`1`}},
	} {
		try := func(value string, good bool) {
			step := map[string]json.RawMessage{"id": []byte(`"y"`), "uses": []byte(`"stripe.customer.create"`)}
			step[field] = []byte(value)
			raw, err := json.Marshal(map[string]any{
				"name": "t", "vars": map[string]string{"v": "x"},
				"steps": []any{map[string]any{"id": "z", "uses": "stripe.customer.create", "savepoint": "start"}, step},
			})
			require.NoError(t, err)
			refused := compileFile("task.yml", raw)
			unfit := schema.Validate(instanceOf(t, string(raw)))
			if good {
				require.NoError(t, refused, "%s: %s", field, value)
				require.NoError(t, unfit, "%s: %s", field, value)
			} else {
				require.True(t, errors.As(refused, new(Problems)), "%s: %s: %v", field, value, refused)
				require.Error(t, unfit, "%s: %s", field, value)
			}
		}
		for _, v := range values.good {
			try(v, true)
		}
		for _, v := range values.bad {
			try(v, false)
		}
	}
}

// So they do of what stands beside the steps.
func TestSchemaAgreesOnEachFieldOfTheTask(t *testing.T) {
	schema := validator(t, specs())
	for field, values := range map[string]struct{ good, bad []string }{
		"on_failure": {[]string{`"unwind"`, `"rollback_step"`, `"continue"`, `"ask"`},
			[]string{`"unwind_to"`, `{"unwind_to":"start"}`, `"stop"`, `null`, `""`}},
		"unwind": {[]string{`"lifo"`, `"parallel"`}, []string{`"LIFO"`, `"unwind"`, `true`, `null`, `""`}},
		"pinned": {[]string{`true`, `false`}, []string{`"yes"`, `1`, `null`, `"${{ vars.v }}"`}},
		"keep":   {[]string{`"1h"`, `"1d12h"`}, []string{`"0s"`, `3600`, `"for ever"`, `null`, `"${{ vars.v }}"`}},
	} {
		try := func(value string) (parsed, fits error) {
			src := `{"name":"t","` + field + `":` + value +
				`,"steps":[{"id":"a","uses":"stripe.customer.create","savepoint":"start"}]}`
			return compileFile("task.yml", []byte(src)), schema.Validate(instanceOf(t, src))
		}
		for _, v := range values.good {
			parsed, fits := try(v)
			require.NoError(t, parsed, "%s: %s", field, v)
			require.NoError(t, fits, "%s: %s", field, v)
		}
		for _, v := range values.bad {
			parsed, fits := try(v)
			require.ErrorAs(t, parsed, new(Problems), "%s: %s", field, v)
			require.Error(t, fits, "%s: %s", field, v)
		}
	}
}

func instanceOf(t *testing.T, src string) any {
	t.Helper()
	var problems Problems
	root := readSource([]byte(src), &collector{problems: &problems})
	require.Empty(t, problems)
	return root.value()
}

func TestSchemaOfADamagedSpec(t *testing.T) {
	_, err := Schema([]activities.Spec{{Name: "x.y",
		Params: []byte(`{"properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}`)}})
	require.EqualError(t, err,
		"action x.y: its parameters' schema has a $ref, which cannot be moved into another schema; write it out")
	_, err = Schema([]activities.Spec{{Name: "x.y", Params: []byte(`{"type":3}`)}})
	require.ErrorContains(t, err, "action x.y: its parameters' schema cannot be read")
}
