package command

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPolicyTestTriesTheExamplesOfAFile(t *testing.T) {
	const rules = "rules: [{name: high, when: 'change.risk == \"high\"', then: deny}]\nexamples:\n" +
		"  - {name: of high risk, change: {risk: high}, want: deny, rules: [high]}\n"
	for name, c := range map[string]struct {
		content  string
		status   int
		out, err string
	}{
		"all pass": {rules, statusOK, "pass  of high risk\npolicy ", ""},
		"one fails": {rules + "  - {name: of low risk, want: ask}\n", statusFailed,
			"FAIL  of low risk: it is none, and should be ask\n", "1 example not as wanted"},
		"a bad file": {"rules: [{name: high, when: 'change.riks', then: deny}]\n", statusUsage, "",
			"policy.yaml:1: rules[0].when: \"change.riks\": undefined field 'riks'"},
		"no example": {"rules: [{name: a, when: 'true', then: deny}]\n", statusOK, "1 rule, 0 examples\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
			var out, err bytes.Buffer
			require.Equal(t, c.status, Run(t.Context(), Options{}, []string{"policy", "test", file}, Streams{Out: &out, Err: &err}))
			require.Contains(t, out.String(), c.out)
			require.Contains(t, err.String(), c.err)
		})
	}
}
