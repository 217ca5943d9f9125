package task

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files made to be slow or large to read are refused in a moment.
func TestAdversary(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, (MaxFile-100)/len(s)) }
	wide := func(s string) string { return fill(s)[:MaxFile/8/len(s)*len(s)] } // many values take their time in any parser
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 x\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i)
	}
	var fields strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&fields, "k%d: 1\n", i)
	}
	for name, src := range map[string]string{
		"lists in lists":     fill("["),
		"lists, a line each": fill("- "),
		"maps in maps":       fill("{a: "),
		"keys of keys":       fill("? "),
		"maps of JSON":       strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		"aliases of aliases": bomb.String(),
		"unknown fields":     fields.String(),
		"one long key":       "{" + fill("k") + ": 1}",
		"many vars":          "name: t\nvars: {" + wide("a, ") + "}\nsteps: [{id: a, uses: file.write}]\n",
		"many needs":         "name: t\nsteps:\n- {id: a, uses: x.y, needs: [" + wide("b, ") + "]}\n",
		"many expressions":   "name: t\nsteps:\n- {id: a, uses: x.y, with: {a: '" + fill("${{ vars.b }}") + "'}}\n",
		"open expressions":   "name: t\nsteps:\n- {id: a, uses: x.y, with: {a: \"" + fill("${{ 'x") + "\"}}\n",
		"vars in text": "name: t\nvars: {b: " + strings.Repeat("x", MaxVars-100) +
			"}\nsteps:\n- {id: a, uses: stripe.customer.create, with: {email: '" + fill("${{ vars.b }}")[:MaxFile-MaxVars-200] +
			" }}'}}\n",
		"vars in lists": "name: t\nvars: {b: " + strings.Repeat("x", MaxVars-100) +
			"}\nsteps:\n- {id: a, uses: container.exec, with: {a: [" + strings.Repeat("'${{ vars.b }}', ", 20_000) + "]}}\n",
		"escaped expressions": "name: ok\nsteps:\n- {id: a, uses: x.y, with: {a: '" + fill("$${{") + "'}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, compileFile("task.yml", []byte(src)))
		})
	}
}
