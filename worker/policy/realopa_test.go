package policy

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// startOPA starts a real OPA, whose bundle is of a revision, with a policy in Rego.
func startOPA(t *testing.T, revision, rego string) (address string) {
	t.Helper()
	address = testrun.StartModule(t, "opaserver", revision)
	put, err := http.NewRequest(http.MethodPut, address+"/v1/policies/unwind", strings.NewReader(rego))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return address
}

// regoOf is the policy in Rego that the documentation shows.
func regoOf(t *testing.T) string { return shownBlock(t, "rego") }

// shownBlock is the block of a language in the documentation.
func shownBlock(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/policies.md")
	require.NoError(t, err)
	_, block, isThere := strings.Cut(string(page), "```"+language+"\n")
	require.True(t, isThere)
	block, _, isThere = strings.Cut(block, "```\n")
	require.True(t, isThere)
	return block
}

func TestARealOPAIsAsked(t *testing.T) {
	address := startOPA(t, "r7", regoOf(t)+`
strict := "deny" if {
	input.step == {"id": "tidy", "action": "postgres.exec", "world": "postgres", "host": "build-1"}
	time.parse_duration_ns(input.change.horizon) == 3600000000000
	time.clock([time.parse_rfc3339_ns(input.time), "Europe/Berlin"]) == [13, 0, 0]
	input.with.id == 9007199254740993
	some c in input.change.counts
	c.removed > 5
}
two := "allow"
two := "deny" if input.change.removed > 0
`)
	ask := func(document string, rows int64) string {
		p := load(t, groups+"opa: {url: '"+address+"/v1/data/unwind/"+document+"', timeout: 20s}\n")
		r := p.Judge(t.Context(), deletion(rows))
		if r == nil {
			return none
		}
		return describe(r) + "; " + r.Name()
	}
	require.Equal(t, "none", ask("verdict", 7))
	require.Equal(t, "ask opa:unwind/verdict (more than a thousand rows go, decision decision-1) one of dba (ann, bob) 4h0m0s; rules opa:unwind/verdict@r7",
		ask("verdict", 1001))
	require.Equal(t, "deny opa:unwind/strict (decision decision-1); rules opa:unwind/strict@r7", ask("strict", 7))
	require.Equal(t, "ask opa:unwind/strict (it gave no verdict: the document is undefined: no policy there has a verdict about this, decision decision-1) 1 person; "+
		"rules opa:unwind/strict@r7", ask("strict", 5))
	require.Equal(t, "allow opa:unwind/two (decision decision-1); rules opa:unwind/two@r7", ask("two", 0))
	require.Equal(t, "ask opa:unwind/two (it gave no verdict: the status is 500) 1 person; rules opa:unwind/two", ask("two", 1), "its rules contradict each other")
	require.Contains(t, ask("gone", 7), "ask opa:unwind/gone (it gave no verdict: the document is undefined")
}

// The Cedar policies that the documentation shows decide as it says.
func TestTheCedarPoliciesOfTheDocumentation(t *testing.T) {
	p := loadCedar(t, shownBlock(t, "text\ncedar: gateway.cedar"), shownBlock(t, "cedar"))
	tried := p.TryExamples(t.Context())
	require.Len(t, tried, 4)
	for _, e := range tried {
		require.Empty(t, e.Wrong, e.Example)
	}
}
