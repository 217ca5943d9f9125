package task

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
			Name: "file.write", Params: activities.ParamsSchema[writeParams](), HostBound: true, Risk: activities.Low, Strategy: activities.Snapshot,
			Outputs: map[string]string{"path": "the file", "digest": "its digest"}, UndoParams: []string{"path", "content"}, Digested: []string{"content"},
			Keys: []activities.Key{{Prefix: "file:", Param: "path", Path: true}},
		},
		{
			Name: "file.delete", Params: activities.ParamsSchema[filesParams](), HostBound: true, Risk: activities.Medium, Strategy: activities.Snapshot,
			Keys: []activities.Key{{Prefix: "file:", Param: "files.*.path", Path: true}},
		},
		{Name: "container.exec", Params: []byte(`{"type":"object"}`), Risk: activities.Medium, Strategy: activities.Snapshot, MayAsk: true},
		{
			Name: "stripe.customer.create", Params: activities.ParamsSchema[customerParams](), Risk: activities.Low, Strategy: activities.Compensation,
			Keys: []activities.Key{}, Outputs: map[string]string{"id": "the customer's id"},
		},
		{
			Name: "stripe.customer.update", Params: activities.ParamsSchema[customerParams](), Risk: activities.Medium, Strategy: activities.Compensation,
			Keys: []activities.Key{{Prefix: "stripe:", Param: "key"}},
		},
		{Name: "stripe.refund.create", Params: []byte(`{"type":"object"}`), Risk: activities.High, Strategy: activities.Irreversible, Keys: []activities.Key{}},
		{Name: "terraform.apply", Params: []byte(`{"type":"object","properties":{"dir":{"type":"string"}}}`), HostBound: true, Risk: activities.High, Strategy: activities.Compensation, MayAsk: true},
	}
}

func catalog() Catalog {
	return Catalog{
		Specs: specs(), Host: "here", SharedQueue: "unwind",
		Journals: map[string]string{"file": "journal-file", "container": "journal-container", "stripe": "journal-stripe", "terraform": "journal-terraform"},
		Secrets:  []string{"STRIPE_KEY", "DB_PASSWORD"},
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

func TestManySteps(t *testing.T) {
	for name, needs := range map[string]string{"in order": "", "independent": "  needs: []\n"} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("name: many\nsteps:\n")
			for i := range MaxSteps {
				fmt.Fprintf(&b, "- id: s%d\n  uses: file.write\n  with: {path: /srv/%d/f, content: x}\n%s", i, i, needs)
			}
			began := time.Now()
			doc := mustParse(t, b.String())
			parsed := time.Since(began)
			compiled, err := Compile(doc, catalog())
			require.NoError(t, err)
			t.Logf("parse %v, compile %v", parsed, time.Since(began)-parsed)
			edges := 0
			for _, s := range compiled.Steps {
				edges += len(s.Needs)
			}
			t.Log("edges", edges)
		})
	}
}
