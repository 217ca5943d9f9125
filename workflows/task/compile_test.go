package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// A small world to compile against.
type writeParams struct {
	Path    string   `json:"path" jsonschema:"the file to write"`
	Content string   `json:"content,omitempty"`
	Source  string   `json:"source,omitempty"`
	Mode    string   `json:"mode,omitempty"`
	Tags    []string `json:"tags,omitempty"`
	Count   int      `json:"count,omitempty"`
	Force   *bool    `json:"force,omitempty"`
}

type filesParams struct {
	Files []struct {
		Path string `json:"path"`
	} `json:"files"`
}

type customerParams struct {
	Email    string            `json:"email,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Key      string            `json:"key,omitempty"`
}

func specs() []activities.Spec {
	return []activities.Spec{
		{
			Name: "file.write", Params: activities.ParamsSchema[writeParams](), HostBound: true, Risk: activities.Low,
			Strategy: activities.Snapshot,
			Outputs:  map[string]string{"path": "the file", "digest": "its digest"}, UndoParams: []string{"path", "content"},
			Digested: []string{"content"},
			Keys:     []activities.Key{{Prefix: "file:", Param: "path", Path: true}},
		},
		{
			Name: "file.delete", Params: activities.ParamsSchema[filesParams](), HostBound: true, Risk: activities.Medium,
			Strategy: activities.Snapshot,
			Keys:     []activities.Key{{Prefix: "file:", Param: "files.*.path", Path: true}},
		},
		{Name: "container.exec", Params: []byte(`{"type":"object"}`), Risk: activities.Medium, Strategy: activities.Snapshot},
		{
			Name: "stripe.customer.create", Params: activities.ParamsSchema[customerParams](), Risk: activities.Low,
			Strategy: activities.Compensation,
			Keys:     []activities.Key{}, Outputs: map[string]string{"id": "the customer's id"},
		},
		{
			Name: "stripe.customer.update", Params: activities.ParamsSchema[customerParams](), Risk: activities.Medium,
			Strategy: activities.Compensation,
			Keys:     []activities.Key{{Prefix: "stripe:", Param: "key"}},
		},
		{Name: "stripe.refund.create", Params: []byte(`{"type":"object"}`), Risk: activities.High,
			Strategy: activities.Irreversible, Keys: []activities.Key{}},
		{Name: "terraform.apply", Params: []byte(`{"type":"object","properties":{"dir":{"type":"string"}}}`), HostBound: true,
			Risk: activities.High, Strategy: activities.Compensation},
	}
}

func catalog() Catalog {
	return Catalog{
		Specs: specs(), Host: "here", SharedQueue: "unwind",
		Journals: map[string]string{"file": "journal-file", "container": "journal-container", "stripe": "journal-stripe",
			"terraform": "journal-terraform"},
		Secrets: []string{"STRIPE_KEY", "DB_PASSWORD"},
	}
}

func mustParse(t testing.TB, src string) *Document {
	t.Helper()
	doc, err := Parse("task.yml", []byte(src))
	require.NoError(t, err)
	return doc
}

func mustCompile(t testing.TB, src string) *Compiled {
	t.Helper()
	compiled, err := Compile(mustParse(t, src), catalog())
	require.NoError(t, err)
	return compiled
}

// Everything that a file can say ends in the compiled task, as it stands here.
func TestCompiled(t *testing.T) {
	for _, name := range []string{"release", "partial"} {
		raw, err := json.MarshalIndent(mustCompile(t, accepted(t)[name+".yml"]), "", "  ")
		require.NoError(t, err)
		golden(t, "testdata/"+name+".compiled.json", string(raw)+"\n")
	}
}

// A worker compiles for others what it has no world for, but only for hosts that a file names.
func TestAnActionOfAnotherHostIsKnown(t *testing.T) {
	compile := func(on string) (*Compiled, error) {
		cat := catalog()
		cat.Specs = slices.DeleteFunc(cat.Specs, func(s activities.Spec) bool { return s.Name == "terraform.apply" })
		cat.Elsewhere = specs()
		return Compile(mustParse(t, "name: t\nsteps:\n  - {id: a, uses: terraform.apply, with: {dir: /srv}"+on+"}\n"), cat)
	}
	compiled, err := compile(", on: there")
	require.NoError(t, err)
	require.Equal(t, activities.Place{Queue: "unwind@there", Host: "there"}, compiled.Steps[0].Place)
	require.True(t, compiled.Steps[0].Gate.Risky)
	for _, on := range []string{"", ", on: here"} {
		_, err = compile(on)
		require.ErrorContains(t, err, `there is no such action, found "terraform.apply"`)
	}
}

// Nothing depends on the order of a Go map.
func TestDeterministic(t *testing.T) {
	for name, src := range accepted(t) {
		first := mustCompile(t, src)
		for range 20 {
			require.Equal(t, first, mustCompile(t, src), name)
		}
	}
	src, err := os.ReadFile("testdata/refused/unknown-action.yml")
	require.NoError(t, err)
	first := compileFile("task.yml", src)
	for range 20 {
		require.Equal(t, first, compileFile("task.yml", src))
	}
}

func TestSecretsAreCheckedWhereTheyAreKnown(t *testing.T) {
	doc := mustParse(t, stepsOf("uses: stripe.customer.create, with: {email: '${{ secrets.OTHER }}'}"))
	cat := catalog()
	cat.Secrets = nil
	compiled, err := Compile(doc, cat)
	require.NoError(t, err)
	require.Equal(t, `{"email":"${{ secrets.OTHER }}"}`, string(compiled.Steps[0].With))
	cat.Secrets = []string{}
	_, err = Compile(doc, cat)
	require.EqualError(t, err,
		`task.yml:3:56: steps.s0.with.email: this worker's config does not allow this secret, found "${{ secrets.OTHER }}"; allowed are: none`)

	elsewhere := mustParse(t, stepsOf("uses: stripe.customer.create, on: another, with: {email: '${{ secrets.OTHER }}'}"))
	_, err = Compile(elsewhere, cat)
	require.NoError(t, err, "the other host has a config of its own")

	cat.Secrets = []string{"OTHER"}
	_, err = Compile(mustParse(t, stepsOf("uses: file.write, with: {path: '/srv/${{ secrets.OTHER }}', content: x}")), cat)
	require.EqualError(t, err,
		`task.yml:3:43: steps.s0.with.path: a path cannot hold a secret: the journal and people see it, found "${{ secrets.OTHER }}"; write it out, or use vars:`)
}

// What the positions' own walk does not know of JSON Schema is still checked.
func TestWholeSchema(t *testing.T) {
	cat := catalog()
	cat.Specs = append(cat.Specs,
		activities.Spec{Name: "x.y", Params: []byte(`{"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],
		"properties":{"a":{"minLength":2,"pattern":"^[a-z]+$","enum":["ab","cd",7]},"b":{"type":"array","uniqueItems":true,"maxItems":3},"c":{"minimum":1,"exclusiveMaximum":5},"d":false}}`)})
	for with, want := range map[string]string{
		"{a: ab}":           "",
		"{a: ab, b: []}":    `task.yml:3:29: steps.s0.with: does not fit x.y: `,
		"{b: [1, 1]}":       `task.yml:3:29: steps.s0.with: does not fit x.y: `,
		"{b: [1, 2, 3, 4]}": `task.yml:3:33: steps.s0.with.b: has 4 items, more than 3`,
		"{a: AB}":           `task.yml:3:33: steps.s0.with.a: must be one of ab, cd, 7, found "AB"; did you mean ab?`,
		"{a: ab, c: 0.5}":   `task.yml:3:40: steps.s0.with.c: must be at least 1, found 0.5`,
		"{a: ab, c: 5}":     `task.yml:3:40: steps.s0.with.c: must be less than 5, found 5`,
		"{a: ab, d: 1}":     `task.yml:3:40: steps.s0.with.d: nothing may stand here, found 1; take it out`,
		"{a: ab, c: '${{ steps.s0.outputs.x }}'}": `task.yml:3:40: steps.s0.with.c: a step cannot build on itself, found "s0"; leave it out`,
	} {
		src := []byte(stepsOf("uses: x.y, with: " + with))
		doc, err := Parse("task.yml", src)
		if err == nil {
			_, err = Compile(doc, cat)
		}
		if want == "" {
			require.NoError(t, err, with)
		} else {
			require.ErrorContains(t, err, want, with)
		}
	}
}

// A catalog that is wrong is not the document's fault.
func TestDamagedSchema(t *testing.T) {
	cat := catalog()
	cat.Specs = []activities.Spec{{Name: "x.y", Params: []byte(`{"type": 3}`)}}
	_, err := Compile(mustParse(t, stepsOf("uses: x.y")), cat)
	require.ErrorContains(t, err, "action x.y: its parameters' schema cannot be read")
	require.False(t, errors.As(err, new(Problems)))
}

// Small in the file, large where it is scheduled: vars are filled in.
func TestChecksThatNoServerTakesAreRefused(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: t\nvars: {big: %q}\nsteps:\n  - id: a\n    uses: fake.do\n    with: {}\n    check:\n",
		strings.Repeat("0123456789", 600))
	for range 3 {
		b.WriteString("      - json: {equals: \"${{ vars.big }}\"}\n")
	}
	doc, err := Parse("t.yaml", []byte(b.String()))
	require.NoError(t, err)
	_, err = Compile(doc, Catalog{
		Specs: []activities.Spec{{Name: "fake.do", Params: json.RawMessage(`{"type":"object"}`), Risk: activities.Low,
			Keys: []activities.Key{}}},
		Host: "h", SharedQueue: "q", Journals: map[string]string{"fake": "j"},
	})
	require.ErrorContains(t, err, "steps.a.check")
	require.ErrorContains(t, err, "bytes with its vars filled in, more than 16384")
}
