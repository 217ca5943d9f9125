package plan

import (
	"encoding/json"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestActionsOfAPlan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string
		want   []Action
		// refused is part of the refusal.
		refused string
	}{
		"nothing":       {`{"actions":["no-op"]}`, nil, ""},
		"a creation":    {`{"actions":["create"]}`, []Action{{Address: "a.b", Kind: Create}}, ""},
		"an update":     {`{"actions":["update"],"before":{"id":"1"}}`, []Action{{Address: "a.b", Kind: Update}}, ""},
		"a replacement": {`{"actions":["delete","create"]}`, []Action{{Address: "a.b", Kind: Replace}}, ""},
		"create, then":  {`{"actions":["create","delete"]}`, []Action{{Address: "a.b", Kind: Replace}}, ""},
		"a deletion":    {`{"actions":["delete"]}`, []Action{{Address: "a.b", Kind: Delete}}, ""},
		"an import": {`{"actions":["no-op"],"importing":{"id":"1"}}`,
			[]Action{{Address: "a.b", Kind: Keep, Imported: true}}, ""},
		"an import, changed": {
			`{"actions":["update"],"importing":{"id":"1"},"before":{"n":1,"s":"x"},"after":{"n":2,"s":"x"}}`,
			[]Action{{Address: "a.b", Kind: Update, Imported: true, Changed: []string{"n"}}}, ""},
		"a forgetting":   {`{"actions":["forget"],"before":{"id":"1"}}`, []Action{{Address: "a.b", Kind: Forget}}, ""},
		"one without id": {`{"actions":["forget"],"before":{"n":"1"}}`, nil, "forgets an object without an id"},
		"import, replaced": {`{"actions":["delete","create"],"importing":{"id":"1"}}`, nil,
			"imports it and does delete and create at once"},
		"an unheard of":  {`{"actions":["create","forget"]}`, nil, "does create and forget"},
		"nothing at all": {`{"actions":[]}`, nil, "does "},
	} {
		var change tfjson.Change
		require.NoError(t, json.Unmarshal([]byte(c.change), &change), name)
		got, err := ReadActions(&tfjson.Plan{ResourceChanges: []*tfjson.ResourceChange{
			{Address: "a.b", Type: "a", Mode: tfjson.ManagedResourceMode, Change: &change},
			{Address: "data.a.b", Type: "a", Mode: tfjson.DataResourceMode,
				Change: &tfjson.Change{Actions: tfjson.Actions{tfjson.ActionRead}}},
		}})
		assert.Equal(t, c.want, got, name)
		if c.refused == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.refused, name)
		assert.Equal(t, activities.Refused, activities.TypeOf(err), name)
	}
}

func TestMovesOfAPlan(t *testing.T) {
	t.Parallel()
	moved := func(from string, does ...tfjson.Action) *tfjson.Plan {
		return &tfjson.Plan{ResourceChanges: []*tfjson.ResourceChange{{
			Address: `module.m["x.y"].a.b[1]`, PreviousAddress: from, Type: "a", Mode: tfjson.ManagedResourceMode,
			Change: &tfjson.Change{Actions: does},
		}}}
	}
	got, err := ReadActions(moved(`module.m["a[0].b"].a.c["k"]`, tfjson.ActionNoop))
	require.NoError(t, err)
	assert.Equal(t, []Action{{Address: `module.m["x.y"].a.b[1]`, Kind: Keep, From: `module.m["a[0].b"].a.c["k"]`}}, got)
	_, err = ReadActions(moved("z.c", tfjson.ActionUpdate))
	require.ErrorContains(t, err, "of another type")
}

func TestWhatNoUndoKnowsIsRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []*tfjson.Plan{
		{DeferredChanges: []*tfjson.DeferredResourceChange{{Reason: "provider_config_unknown",
			ResourceChange: &tfjson.ResourceChange{Address: "a.b"}}}},
		{ActionInvocations: []*tfjson.ActionInvocation{{Address: "action.a.b"}}},
		{ResourceChanges: []*tfjson.ResourceChange{{Address: "a.b", Mode: "ephemeral",
			Change: &tfjson.Change{Actions: tfjson.Actions{tfjson.ActionCreate}}}}},
		{ResourceChanges: []*tfjson.ResourceChange{{Address: "a.b", Mode: tfjson.ManagedResourceMode}}},
	} {
		_, err := ReadActions(p)
		assert.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	}
}
