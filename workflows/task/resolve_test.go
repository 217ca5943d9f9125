package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-62bf7108/unwind/activities"
)

func resolved(t testing.TB, with string, outputs map[string]any) string {
	t.Helper()
	raw, err := Step{ID: "s", With: json.RawMessage(with)}.Resolve(map[string]map[string]any{"a": outputs})
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
	return string(raw)
}

func TestResolve(t *testing.T) {
	outputs := map[string]any{"text": `say "é"`, "n": 7.0, "f": 0.5, "yes": true, "none": nil, "list": []any{"x", 2.0},
		"map": map[string]any{"b": 1.0, "a": "$"}}
	for with, want := range map[string]string{
		``:                                      `{}`,
		`{"b":1,"a":[null,true,"x"]}`:           `{"b":1,"a":[null,true,"x"]}`,
		`{"v":"${{ steps.a.outputs.text }}"}`:   `{"v":"say \"é\""}`,
		`{"v":"${{ steps.a.outputs.n }}"}`:      `{"v":7}`,
		`{"v":"${{ steps.a.outputs.none }}"}`:   `{"v":null}`,
		`{"v":"${{ steps.a.outputs.list }}"}`:   `{"v":["x",2]}`,
		`{"v":["${{ steps.a.outputs.map }}"]}`:  `{"v":[{"a":"$","b":1}]}`,
		`{"v":"<${{ steps.a.outputs.text }}>"}`: `{"v":"<say \"é\">"}`,
		`{"v":"${{ steps.a.outputs.n }}/${{ steps.a.outputs.f }}/${{ steps.a.outputs.yes }}"}`: `{"v":"7/0.5/true"}`,
		`{"v":"x${{ steps.a.outputs.list }}"}`:                                                 `{"v":"x[\"x\",2]"}`,
		`{"v":"Bearer ${{secrets.KEY}}"}`:                                                      `{"v":"Bearer ${{ secrets.KEY }}"}`,
		`{"v":"$${{ secrets.KEY }}"}`:                                                          `{"v":"\u0024{{ secrets.KEY }}"}`,
		`{"v":"a $ and ${b}"}`:                                                                 `{"v":"a $ and \u0024{b}"}`,
	} {
		require.Equal(t, want, resolved(t, with, outputs), with)
	}
}

func TestResolveRefuses(t *testing.T) {
	outputs := map[string]map[string]any{"a": {"path": "x", "none": nil, "big": strings.Repeat("x", MaxInline)}, "b": {}}
	for with, want := range map[string]string{
		`{"v":"${{ steps.c.outputs.path }}"}`:   `steps.s.with: ${{ steps.c.outputs.path }}: it is known when step c has run`,
		`{"v":"${{ steps.a.outputs.pth }}"}`:    `steps.s.with: ${{ steps.a.outputs.pth }}: there is no such output; did you mean path?`,
		`{"v":"-${{ steps.b.outputs.path }}"}`:  `steps.s.with: ${{ steps.b.outputs.path }}: there is no such output; outputs of step b: none`,
		`{"v":"x ${{ steps.a.outputs.none }}"}`: `steps.s.with: ${{ steps.a.outputs.none }}: the output is nothing, and cannot be a part of a text`,
		`{"v":["${{ vars.x }}"]}`:               `steps.s.with: ${{ vars.x }}: the step was not compiled`,
		`{"v":"${{ steps.a.outputs.big }}"}`:    `steps.s.with: has 65544 bytes with its outputs filled in, more than 65536; let the steps hand content over in a file, named by source`,
		`{"v":`:                                 `steps.s.with: is not JSON`,
		`{"v":"${{ x }}"}`: `steps.s.with: is not an expression that is known here, found "${{ x }}"; ` +
			expressionForms,
	} {
		_, err := Step{ID: "s", With: json.RawMessage(with)}.Resolve(outputs)
		require.EqualError(t, err, want, with)
	}
}

// echo is an action that returns its parameters as it got them from the worker's wrapper.
type echo struct{ got *string }

func (echo) Spec() activities.Spec { return activities.Spec{Name: "test.echo", Params: []byte(`{}`)} }
func (a echo) Apply(_ context.Context, _ activities.Entry, s activities.Step, _ activities.Digest) (activities.Result,
	error) {
	*a.got = string(s.With)
	return activities.Result{}, nil
}
func (echo) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return activities.Change{}, errors.ErrUnsupported
}
func (a echo) Undo(_ context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	*a.got = string(e.Params)
	return activities.Undone{}, nil
}
func (echo) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{}, errors.ErrUnsupported
}
func (echo) Release(context.Context, activities.Entry) error { return nil }

type oneSecret struct{}

func (oneSecret) Secret(name, _ string) (string, error) {
	if name != "KEY" {
		return "", fmt.Errorf("not allowed")
	}
	return "hunter2-hunter2", nil
}

func (oneSecret) Values() []string { return []string{"hunter2-hunter2"} }

// The worker puts secrets in where the task file refers to them, and nowhere else: neither into
// what an output holds, nor into what outputs and texts make together, nor into a text that was
// escaped.
func TestOutputsAreNeverSecrets(t *testing.T) {
	const ref = "${{ secrets.KEY }}"
	outputs := map[string]any{"ref": ref, "head": "${{", "dollar": "$", "tail": " secrets.KEY }}",
		"map": map[string]any{ref: []any{ref, "\\" + ref}}}
	with := `{
		"mine": "Bearer ` + ref + `",
		"whole": "${{ steps.a.outputs.ref }}",
		"part": "x ${{ steps.a.outputs.ref }} ` + ref + `",
		"joined": "${{ steps.a.outputs.head }}${{ steps.a.outputs.tail }}",
		"text": "${{ steps.a.outputs.head }} secrets.KEY }}",
		"dollar": "${{ steps.a.outputs.dollar }}{{ secrets.KEY }}",
		"escaped": "$` + ref + ` \\$` + ref + `",
		"quoted": "${{ '` + ref + `' }}",
		"nested": ["${{ steps.a.outputs.map }}"]
	}`
	want := map[string]any{
		"mine":    "Bearer hunter2-hunter2",
		"whole":   ref,
		"part":    "x " + ref + " hunter2-hunter2",
		"joined":  ref,
		"text":    ref,
		"dollar":  ref,
		"escaped": ref + ` \` + ref,
		"quoted":  ref,
		"nested":  []any{map[string]any{ref: []any{ref, "\\" + ref}}},
	}
	step := Step{ID: "s", With: json.RawMessage(with)}
	for name := range want {
		step.UndoParams = append(step.UndoParams, name)
	}
	raw, err := step.Resolve(map[string]map[string]any{"a": outputs})
	require.NoError(t, err)
	params, err := step.EntryParams(raw)
	require.NoError(t, err)

	var got string
	registry := activities.NewRegistry(activities.World{
		Name: "test", Actions: []activities.Action{echo{&got}},
		Journal: func(context.Context) (string, error) { return "j", nil },
	})
	env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
	registry.Register(env, activities.Host{Secrets: oneSecret{}})

	// The way of a payload: a workflow's argument, and again an activity's.
	carry := func(v, to any) {
		payload, err := converter.GetDefaultDataConverter().ToPayload(v)
		require.NoError(t, err)
		require.NoError(t, converter.GetDefaultDataConverter().FromPayload(payload, to))
	}
	forward := activities.Forward{Step: activities.Step{ID: "s", With: raw},
		Entry: activities.Entry{Version: activities.EntryVersion, Params: params}, OriginalRunID: "default-test-run-id"}
	for range 2 {
		var carried activities.Forward
		carry(forward, &carried)
		forward = carried
	}
	check := func() {
		t.Helper()
		var value map[string]any
		require.NoError(t, json.Unmarshal([]byte(got), &value))
		require.Equal(t, want, value)
	}
	_, err = env.ExecuteActivity("test.echo", forward)
	require.NoError(t, err)
	check()
	got = ""
	_, err = env.ExecuteActivity("test.echo.undo", activities.Backward{Entry: forward.Entry})
	require.NoError(t, err)
	check()
}

func TestEntryParams(t *testing.T) {
	s := Step{ID: "s", UndoParams: []string{"path", "content", "mode"}, Digested: []string{"content"}}
	params, err := s.EntryParams(json.RawMessage(`{"path":"/srv/a","content":"bulky","other":1}`))
	require.NoError(t, err)
	var kept map[string]string
	require.NoError(t, json.Unmarshal(params, &kept))
	require.Len(t, kept, 2)
	require.Equal(t, "/srv/a", kept["path"])
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, kept["content"])
	_, err = s.EntryParams(json.RawMessage(`[]`))
	require.ErrorContains(t, err, "steps.s.with: ")
}

// likeTheWorkers is the pattern that the worker finds references with, in JSON as it stands.
var likeTheWorkers = regexp.MustCompile(`\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// Whatever a text and an output hold: the result is JSON, and it has exactly the references to
// secrets that the text has.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{
		"plain", "${{ steps.a.outputs.o }}", "x${{ steps.a.outputs.o }}${{ secrets.KEY }}", "$${{ secrets.KEY }}",
		"${{ 'x' }}${{ secrets.KEY }}",
		"$${{ steps.a.outputs.o }} secrets.KEY }}", "${{ steps.a.outputs.o }}{{ secrets.KEY }}", "\\${{ secrets.KEY }}",
	} {
		f.Add(s, "${{ secrets.KEY }}")
		f.Add(s, "$")
		f.Add(s, "${{")
	}
	f.Fuzz(func(t *testing.T, text, output string) {
		with := append(appendText([]byte(`{"v":`), text), '}')
		step := Step{ID: "s", With: with}
		for _, value := range []any{output, []any{output}, map[string]any{output: output}} {
			raw, err := step.Resolve(map[string]map[string]any{"a": {"o": value}})
			if err != nil {
				return
			}
			require.True(t, json.Valid(raw))
			parsed, bad := parseTemplate(strings.ToValidUTF8(text, "\uFFFD"))
			require.Nil(t, bad)
			secrets := 0
			for _, p := range parsed {
				if p.kind == secretRef {
					secrets++
				}
			}
			require.Len(t, likeTheWorkers.FindAll(raw, -1), secrets, "%s", raw)
			again, err := step.Resolve(map[string]map[string]any{"a": {"o": value}})
			require.NoError(t, err)
			require.Equal(t, raw, again)
		}
	})
}

// References are exactly the steps that Resolve must be given outputs of.
func TestReferences(t *testing.T) {
	for with, want := range map[string][]string{
		"":                                       nil,
		"{}":                                     nil,
		"{email: plain}":                         nil,
		"{email: '${{ secrets.STRIPE_KEY }}'}":   nil,
		"{email: '$${{ steps.s0.outputs.id }}'}": nil,
		`{email: "${{ '${{ steps.s0.outputs.id }}' }}"}`: nil,
		"{email: '${{ steps.s1.outputs.id }}'}":          {"s1"},
		"{email: '${{ steps.s2.outputs.id }}-${{ steps.s0.outputs.id }}', metadata: {a: 'x${{ steps.s2.outputs.id }}', " +
			"b: '${{ secrets.STRIPE_KEY }}${{ steps.s1.outputs.id }}'}}": {"s0", "s1", "s2"},
	} {
		if with != "" {
			with = ", with: " + with
		}
		const create = "uses: stripe.customer.create"
		s := mustCompile(t, stepsOf(create, create, create, create+with)).Steps[3]
		require.Equal(t, want, s.References(), with)
		given := map[string]map[string]any{}
		for _, id := range want {
			_, err := s.Resolve(given)
			require.ErrorContains(t, err, "it is known when step ")
			given[id] = map[string]any{"id": "x"}
		}
		_, err := s.Resolve(given)
		require.NoError(t, err, with)

		raw, err := json.Marshal(s) // as the workflow gets it
		require.NoError(t, err)
		var carried Step
		require.NoError(t, json.Unmarshal(raw, &carried))
		require.Equal(t, want, carried.References(), with)
	}
	require.Nil(t, Step{With: []byte(`{"a":"${{ steps.a.outputs.b }}"`)}.References(), "no JSON")
}

// What depends on an earlier step, and what is long, is left out of an outlook; all else stands in
// it.
func TestOutlook(t *testing.T) {
	long := strings.Repeat("x", 5000)
	s := Step{ID: "s", Uses: "file.write",
		With: json.RawMessage(`{"path": "/srv/a", "content": "${{ steps.a.outputs.id }}",
		"note": "$${{ no }} ${{ secrets.KEY }}", "long": "` + long + `", "argv": ["a", "${{ steps.a.outputs.id }}"],
		"files": [{"path": "/b", "content": "of ${{ steps.a.outputs.id }}"}, {"path": "/c"}]}`)}
	o, err := s.Outlook()
	require.NoError(t, err)
	require.JSONEq(t,
		`{"path": "/srv/a", "note": "${{ no }} ${{ secrets.KEY }}", "files": [{"path": "/b"}, {"path": "/c"}]}`,
		string(o.With))
	require.NotContains(t, string(o.With), "${{ no }}", "to the worker, only a reference to a secret reads as one")
	require.Equal(t, []string{"content", "long", "argv", "files[0].content"}, o.Later)
	require.True(t, o.Awaits("argv[0]"))
	require.False(t, o.Awaits("argvs"))
}

func TestMayChange(t *testing.T) {
	c := Compiled{Steps: []Step{
		{ID: "a", Keys: []string{"file:/srv/site"}}, {ID: "b", MayChange: []string{"container:"}},
		{ID: "c", Keys: []string{"container:app"}},
	}}
	for key, want := range map[string]bool{
		"file:/srv/site": true, "file:/srv/site/a": true, "file:/srv": true, "file:/srv/site2": false, "container:app": true,
		"image:app": false,
	} {
		require.Equal(t, want, c.MayChange(2, key), key)
	}
	require.False(t, c.MayChange(0, "file:/srv/site"), "nothing is before the first")
}
