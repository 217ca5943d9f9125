package task

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemplates(t *testing.T) {
	for s, want := range map[string]template{
		"":                         nil,
		"plain $5 {{ x }} $ {":     {{text: "plain $5 {{ x }} $ {"}},
		"${{ vars.a }}":            {{kind: varRef, text: "${{ vars.a }}", name: "a"}},
		"${{vars.a-b}}/x":          {{kind: varRef, text: "${{vars.a-b}}", name: "a-b"}, {text: "/x"}},
		"${{\tsecrets.A_1\n}}":     {{kind: secretRef, text: "${{\tsecrets.A_1\n}}", name: "A_1"}},
		"$${{ vars.a }}":           {{text: "${{ vars.a }}"}},
		"$$${{ vars.a }}":          {{text: "$${{ vars.a }}"}},
		"${{ 'it''s }} $' }}$":     {{text: "it's }} $$"}},
		"${{''}}":                  nil,
		"a${{ '$' }}${{ vars.a }}": {{text: "a$"}, {kind: varRef, text: "${{ vars.a }}", name: "a"}},
		"${{ steps.a-1.outputs.b }}c": {
			{kind: outputRef, text: "${{ steps.a-1.outputs.b }}", step: "a-1", name: "b"}, {text: "c"},
		},
	} {
		got, bad := parseTemplate(s)
		require.Nil(t, bad, s)
		require.Equal(t, want, got, s)
		again, bad := parseTemplate(got.String())
		require.Nil(t, bad, got.String())
		require.Equal(t, names(got), names(again), got.String())
	}
	for _, s := range []string{
		"${{", "${{ }}", "${{ vars }}", "${{ vars. }}", "${{ vars.1 }}", "${{ vars.a.b }}", "${{ env.A }}",
		"${{ secrets.A-B }}",
		"${{ steps.a.outputs }}", "${{ steps.A.outputs.b }}", "${{ vars.a || 'b' }}", "${{ 'a }}", "${{ 'a' b }}", "${{ 'a'",
		"${{ vars.a }",
	} {
		_, bad := parseTemplate(s)
		require.NotNil(t, bad, s)
	}
}

// names is a template without how its references were written.
func names(t template) template {
	var n template
	for _, p := range t {
		if p.kind != literal {
			p.text = ""
		}
		n = append(n, p)
	}
	return n
}
