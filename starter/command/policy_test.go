package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/policy"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
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
		"an OPA that does not answer": {rules + "opa: {url: 'http://127.0.0.1:1/v1/data/x'}\n", statusFailed,
			"untried  of high risk: opa:x: it gave no verdict: dial tcp 127.0.0.1:1: connect: connection refused\npolicy ", "1 example not tried"},
		"the engines that it asks": {rules + "opa: {url: 'http://127.0.0.1:1/v1/data/x'}\n", statusFailed, ": 1 rule, opa:x, 1 example\n", ""},
		"no example":               {"rules: [{name: a, when: 'true', then: deny}]\n", statusOK, "1 rule, 0 examples\n", ""},
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

const tryRules = "rules:\n" +
	"  - {name: readers, when: 'change.risk == \"medium\"', then: ask, why: somebody reads it}\n" +
	"  - {name: no-b, when: 'step.world == \"fake\" && with.key == \"b\"', then: deny}\n"

// What a policy would have decided is told by the history alone: no worker is asked.
func TestPolicyTryJudgesWhatATaskHasDone(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file("name: three\nsteps:\n"+
		"  - {id: asked, uses: fake.set, with: {key: a, value: x}, gate: ask}\n"+
		"  - {id: unasked, uses: fake.set, with: {key: a, value: y}}\n"+
		"  - {id: wrong, uses: fake.set, with: {key: b, value: x}, gate: ask}\n"), "--id", t.Name())
	for _, step := range []string{"asked", "wrong"} {
		d.until(t.Name(), func(s protocol.State) bool { return len(s.Gates) == 1 && s.Gates[0].Step == step })
		d.ok("approve", t.Name(), step, "--yes")
	}
	d.ok("watch", t.Name())
	d.leaveQueue()
	rules := filepath.Join(d.folder, "policy.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(tryRules), 0o600))
	loaded, err := policy.Load(rules, "")
	require.NoError(t, err)
	v := loaded.Version.Short()
	require.Equal(t, "policy "+v+" on 3 steps of task "+t.Name()+`
STEP ACTION VERDICT BY
asked fake.set ask rules readers@`+v+` (somebody reads it); 0 of 1: still 1 person
unasked fake.set ask rules readers@`+v+` (it looks at what the history of the task does not tell: change); 0 of 1: still 1 person
wrong fake.set deny rules no-b@`+v+`
`, normal(d.ok("policy", "try", rules, t.Name())))
	var tried triedJSON
	require.NoError(t, json.Unmarshal([]byte(d.ok("policy", "try", rules, t.Name(), "-o", "json")), &tried))
	var verdicts []activities.Verdict
	for _, s := range tried.Steps {
		verdicts = append(verdicts, s.Verdict)
	}
	require.Equal(t, []activities.Verdict{activities.Asked, activities.Asked, activities.Denies}, verdicts)
	require.Equal(t, []activities.RuleMatch{{Name: "no-b"}}, tried.Steps[2].Rules)

	require.Equal(t, statusUsage, d.do("policy", "try", rules, "no-such-task").status)
	require.NoError(t, os.WriteFile(rules, []byte("rules: []\n"), 0o600))
	require.Equal(t, statusUsage, d.do("policy", "try", rules, t.Name()).status)
}

// A step that never acted is judged where it was planned, and none that follows counts it; one that
// waited at its gate is judged when it acted.
func TestPolicyTryCountsWhatHasActed(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file("name: three\nsteps:\n"+
		"  - {id: rejected, uses: fake.set, on: here, with: {key: a, value: x}, gate: ask, needs: []}\n"+
		"  - {id: late, uses: fake.set, on: here, with: {key: b, value: x}, gate: ask, needs: []}\n"+
		"  - {id: early, uses: fake.set, on: here, with: {key: c, value: x}, needs: []}\n"), "--id", t.Name())
	done := func(id string) func(protocol.State) bool {
		return func(s protocol.State) bool {
			return slices.ContainsFunc(s.Steps, func(v protocol.StepView) bool { return v.ID == id && v.State == protocol.Done })
		}
	}
	d.until(t.Name(), func(s protocol.State) bool { return len(s.Gates) == 2 && done("early")(s) })
	d.ok("approve", t.Name(), "late", "--yes")
	d.until(t.Name(), done("late"))
	d.ok("reject", t.Name(), "rejected", "--why", "no")
	require.Equal(t, statusFailed, d.do("watch", t.Name()).status)
	rules := filepath.Join(d.folder, "policy.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("rules: [{name: second, when: 'history.steps == 1', then: deny}]\n"), 0o600))
	var tried triedJSON
	require.NoError(t, json.Unmarshal([]byte(d.ok("policy", "try", rules, t.Name(), "-o", "json")), &tried))
	var verdicts []string
	for _, s := range tried.Steps {
		verdicts = append(verdicts, s.Step+": "+string(s.Verdict))
	}
	require.Equal(t, []string{"rejected: none", "early: none", "late: deny"}, verdicts)
}
