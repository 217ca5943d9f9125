package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// write makes a policy file.
func write(t testing.TB, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func load(t testing.TB, content string) *Policy {
	t.Helper()
	p, err := Load(write(t, content), "build-1")
	require.NoError(t, err)
	p.now = usualNow
	return p
}

func usualNow() time.Time { return usualTime }

const groups = "groups: {dba: [ann, bob], sre: [cy, ann]}\n"

// deletion is a step that deletes rows.
func deletion(rows int64) activities.Case {
	return activities.Case{
		Task: "tidy-1", Agent: "bot", Action: "postgres.exec", Host: "build-1",
		Step: activities.Step{ID: "tidy", With: json.RawMessage(`{"database": "shop", "sql": "DELETE FROM a", "id": 9007199254740993}`)},
		Change: activities.Change{
			Summary: "delete", Risk: activities.High, Strategy: activities.Transaction, Undo: "put back", Losses: []string{"a sequence"},
			Facts: []string{"no WHERE"}, Schema: []string{"drop index"}, Keys: []string{"postgres:shop"}, Diff: strings.Repeat("-", 40_000),
			Counts:  []activities.Count{{Of: "a", Removed: rows, Before: rows + 1}, {Of: "b", Added: 3, Changed: 2}},
			Horizon: time.Hour,
		},
		History: func() (activities.History, error) {
			return activities.History{Steps: 50, By: map[string]int64{"file.write": 20, "postgres.exec": 30}, Added: 1, Removed: 2,
				Changed: 3}, nil
		},
	}
}

func TestVerdicts(t *testing.T) {
	const big = "{name: big, when: 'change.counts.exists(c, c.removed > 1000)', "
	for name, c := range map[string]struct {
		rules string
		want  string // verdict, rules and demands
	}{
		"no rule matches":           {big + "then: deny}", "none"},
		"one allows":                {"{name: shop, when: 'with.database == \"shop\"', then: allow}", "allow shop"},
		"one denies":                {"{name: high, when: 'change.risk == \"high\"', then: deny}", "deny high"},
		"one asks anybody":          {"{name: high, when: 'change.risk == \"high\"', then: ask}", "ask high 1 person"},
		"deny is stricter than ask": {"{name: a, when: 'true', then: ask}, {name: d, when: 'true', then: deny}, {name: b, when: 'true', then: allow}", "deny d"},
		"ask is stricter than allow": {"{name: b, when: 'true', then: allow}, {name: a, when: 'true', then: ask, from: [{group: dba}]}",
			"ask a one of dba (ann, bob)"},
		"all that ask add up, the shortest time counts": {
			"{name: a, when: 'true', then: ask, from: [{group: dba, persons: 2}], within: 4h}, " +
				"{name: b, when: 'true', then: ask, from: [{group: dba}, {group: sre}], within: 1h}, {name: c, when: 'true', then: ask}",
			"ask a b c 2 of dba (ann, bob), one of sre (cy, ann) 1h0m0s"},
		"two that deny": {"{name: a, when: 'true', then: deny}, {name: b, when: 'true', then: deny}", "deny a b"},
		"a parameter that is not there asks": {"{name: f, when: 'with.force == true', then: allow}",
			"ask f (it could not be evaluated: no such key: force) 1 person"},
		"one that is asked for first does not": {"{name: f, when: 'has(with.force) && with.force == true', then: allow}", "none"},
		"a deny that cannot be evaluated asks": {"{name: f, when: 'with.force == true', then: deny}",
			"ask f (it could not be evaluated: no such key: force) 1 person"},
		"whom it asks it asks then too": {"{name: f, when: 'with.force == true', then: ask, from: [{group: dba}]}",
			"ask f (it could not be evaluated: no such key: force) one of dba (ann, bob)"},
		"but another one may deny": {"{name: f, when: 'with.force == true', then: allow}, {name: d, when: 'true', then: deny}", "deny d"},
		"too much to evaluate asks": {"{name: slow, when: '" + strings.Repeat("[1,2,3,4,5,6,7,8].all(x, ", 7) + "x > 0" + strings.Repeat(")", 7) + "', then: allow}",
			"ask slow (it could not be evaluated: operation cancelled: actual cost limit exceeded) 1 person"},
		"task and step": {"{name: t, when: 'task.id == \"tidy-1\" && task.agent == \"bot\" && step.id == \"tidy\" && " +
			"step.action == \"postgres.exec\" && step.world == \"postgres\" && step.host == host && host == \"build-1\"', then: deny}", "deny t"},
		"the horizon": {"{name: h, when: 'change.horizon < duration(\"2h\")', then: deny}", "deny h"},
		"all of a history": {"{name: b, when: 'history.steps == 50 && history.by[\"file.write\"] == 20 && history.by[step.action] == 30 && " +
			"history.added == 1 && history.removed == 2 && history.changed == 3 && !(\"redis.set\" in history.by)', then: deny}", "deny b"},
		"a budget with this change": {"{name: b, when: 'history.removed + change.removed > 8', then: ask}", "ask b 1 person"},
		"all of a change's tables":  {"{name: b, when: 'change.added == 3 && change.removed == 7 && change.changed == 2', then: deny}", "deny b"},
		"time":                      {"{name: t, when: 'time.getDayOfWeek() == 1 && time.getHours(\"Europe/Berlin\") == 13', then: deny}", "deny t"},
		"a long number":             {"{name: n, when: 'with.id == 9007199254740993', then: deny}", "deny n"},
		"a pattern":                 {"{name: n, when: 'with.sql.matches(\"(?i)^delete\")', then: deny}", "deny n"},
		"all of a change": {"{name: c, when: 'change.summary == \"delete\" && change.strategy == \"transaction\" && change.undo == \"put back\" && " +
			"change.losses == [\"a sequence\"] && change.facts.size() == 1 && change.schema[0].startsWith(\"drop\") && \"postgres:shop\" in change.keys && " +
			"!change.unchanged && change.diffBytes == 40000', then: deny}", "deny c"},
		"all of a count": {"{name: c, when: 'change.counts[1].of == \"b\" && change.counts[1].added == 3 && change.counts[1].changed == 2 && " +
			"change.counts[0].removed == 7 && change.counts[0].before == 8', then: deny}", "deny c"},
	} {
		t.Run(name, func(t *testing.T) {
			r := load(t, groups+"rules: ["+c.rules+"]\n").Judge(t.Context(), deletion(7))
			require.Equal(t, c.want, describe(r))
		})
	}
}

func describe(r *activities.Ruling) string {
	if r == nil {
		return none
	}
	text := string(r.Verdict)
	for _, rule := range r.Rules {
		text += " " + rule.Name
		if rule.Why != "" {
			text += " (" + rule.Why + ")"
		}
	}
	for i, d := range r.Demands {
		if i > 0 {
			text += ","
		}
		text += " " + d.String()
	}
	if r.Within > 0 {
		text += " " + r.Within.String()
	}
	return text
}

// What a person is shown is cut; what a rule sees is not.
func TestARuleSeesTheWholeList(t *testing.T) {
	c := deletion(7)
	for i := range 200 {
		c.Change.Counts = append(c.Change.Counts, activities.Count{Of: fmt.Sprint(i)})
	}
	c.Change.Counts = append(c.Change.Counts, activities.Count{Of: "the last", Removed: 2000})
	r := load(t, "rules: [{name: big, when: 'change.counts.exists(c, c.removed > 1000)', then: deny, why: many rows go}]").Judge(t.Context(), c)
	require.Equal(t, "deny big (many rows go)", describe(r))
}

func TestAHistoryIsReadOnlyForRulesThatLookAtIt(t *testing.T) {
	c, read := deletion(1), 0
	c.History = func() (activities.History, error) { read++; return activities.History{}, errors.New("a damaged note") }
	require.Equal(t, "deny a", describe(load(t, "rules: [{name: a, when: 'true', then: deny}]").Judge(t.Context(), c)))
	require.Zero(t, read)
	const budget = "{name: b, when: 'history.steps >= 50', then: deny}"
	require.Equal(t, "ask b (it could not be evaluated: what the task has done before cannot be read: a damaged note) 1 person",
		describe(load(t, "rules: ["+budget+"]").Judge(t.Context(), c)))

	c.History = func() (activities.History, error) { return activities.History{}, nil }
	require.Equal(t, none, describe(load(t, "rules: [{name: b, when: 'history.by[step.action] >= 50', then: deny}]").Judge(t.Context(), c)),
		"it has done nothing yet, and that is no error")
}

func TestTheVersionIsTheDigestOfTheFile(t *testing.T) {
	const content = "rules: [{name: a, when: 'true', then: deny}]\n"
	p := load(t, content)
	require.Equal(t, activities.Digest("sha256:d883a9d9ef68c8f3"), p.Version[:len("sha256:")+16])
	require.NotEqual(t, p.Version, load(t, content+"# another\n").Version)
	require.Equal(t, p.Version, p.Judge(t.Context(), deletion(1)).Version)
}

func TestParametersThatAreNoneAsk(t *testing.T) {
	c := deletion(1)
	c.Step.With = json.RawMessage(`[`)
	require.Equal(t, activities.Asked, load(t, "rules: [{name: a, when: 'true', then: allow}]\n").Judge(t.Context(), c).Verdict)
}

func TestABadFileIsRefused(t *testing.T) {
	const ok = "name: a, when: 'true', then: ask"
	for content, want := range map[string]string{
		"":                                       "policy.yaml:1: rules: there is none, so it would decide nothing; write rules, or leave policy out of the config",
		"rules: []\n":                            "policy.yaml:1: rules: there is none",
		"rule: []\n":                             "policy.yaml:1: rule: there is no such field; did you mean rules?",
		"rules: {a: b}\n":                        "policy.yaml:1: rules: must be a list of maps of fields, found a map",
		"rules:\n  - {" + ok + ", than: deny}\n": "policy.yaml:2: rules[0].than: there is no such field; did you mean then?",
		"rules:\n  - {when: 'true', then: ask}\n":            "policy.yaml:2: rules[0].name: it is missing; name the rule",
		"rules:\n  - {name: a b, when: 'true', then: ask}\n": `policy.yaml:2: rules[0].name: "a b" is no name; give it letters`,
		"rules:\n  - {" + ok + "}\n  - {" + ok + "}\n":       `policy.yaml:3: rules[1].name: "a" is the name of rules[0] as well; give it another`,
		"rules:\n  - {name: a, then: ask}\n":                 "policy.yaml:2: rules[0].when: it is missing; write a condition",
		"rules:\n  - name: a\n    when: change.riks == 'high'\n    then: ask\n": `policy.yaml:3: rules[0].when: "change.riks == 'high'": ` +
			"undefined field 'riks', in line 1, column 7; a rule can look at change.added, change.changed, change.counts, change.diffBytes,",
		"rules:\n  - {name: a, when: 'change.counts.exists(c, c.deleted > 1)', then: ask}\n":               "undefined field 'deleted'",
		"rules:\n  - {name: a, when: 'chagne.risk == \"high\"', then: ask}\n":                              "undeclared reference to 'chagne'",
		"rules:\n  - {name: a, when: 'change.risk = 1', then: ask}\n":                                      "Syntax error: token recognition error at: '= '",
		"rules:\n  - {name: a, when: 'change.risk == \"hihg\"', then: ask}\n":                              `change.risk is never "hihg"; it is one of low, medium, high`,
		"rules:\n  - {name: a, when: '\"High\" != change.risk', then: ask}\n":                              `change.risk is never "High"`,
		"rules:\n  - {name: a, when: 'change.strategy in [\"snapshot\", \"copy\"]', then: ask}\n":          `change.strategy is never "copy"; it is one of snapshot, transaction`,
		"rules:\n  - {name: a, when: 'change.risk == 1', then: ask}\n":                                     "found no matching overload for '_==_' applied to '(string, int)'",
		"rules:\n  - {name: a, when: 'change.risk', then: ask}\n":                                          "it is of type string, and must be true or false: compare it with something",
		"rules:\n  - {name: a, when: 'with.force', then: ask}\n":                                           "it is of type dyn, and must be true or false",
		"rules:\n  - {name: a, when: 'true', then: aks}\n":                                                 `policy.yaml:2: rules[0].then: "aks" must be allow, ask or deny`,
		"rules:\n  - {name: a, when: 'true'}\n":                                                            `policy.yaml:2: rules[0].then: "" must be allow, ask or deny`,
		"rules:\n  - {" + ok + ", why: " + strings.Repeat("x", 201) + "}\n":                                "policy.yaml:2: rules[0].why: it has 201 bytes, and at most 200 are shown",
		"rules:\n  - {" + ok + ", within: 4}\n":                                                            "policy.yaml:2: rules[0].within: must be a time, such as 30s, 5m or 2h, found 4",
		"rules:\n  - {" + ok + ", within: -4h}\n":                                                          "policy.yaml:2: rules[0].within: -4h0m0s is too short; give at least 1s",
		"rules:\n  - {name: a, when: 'true', then: deny, within: 4h}\n":                                    "policy.yaml:2: rules[0].within: only a rule that asks has it",
		groups + "rules:\n  - {name: a, when: 'true', then: allow, from: [{group: dba}]}\n":                "policy.yaml:3: rules[0].from: only a rule that asks has it",
		groups + "rules:\n  - {" + ok + ", from: []}\n":                                                    "policy.yaml:3: rules[0].from: it names nobody",
		groups + "rules:\n  - {" + ok + ", from: [{group: dab}]}\n":                                        `policy.yaml:3: rules[0].from[0].group: "dab" is none of groups; did you mean dba?`,
		groups + "rules:\n  - {" + ok + ", from: [{group: nothing-like-it}]}\n":                            "known are dba, sre",
		"rules:\n  - {" + ok + ", from: [{group: dba}]}\n":                                                 "add it, as in groups: {dba: [ann, bob]}",
		groups + "rules:\n  - {" + ok + ", from: [{persons: 2}]}\n":                                        `rules[0].from[0].group: "" is none of groups`,
		groups + "rules:\n  - {" + ok + ", from: [{group: dba}, {group: dba}]}\n":                          `"dba" stands here twice; give persons the sum`,
		groups + "rules:\n  - {" + ok + ", from: [{group: dba, persons: 0}]}\n":                            "rules[0].from[0].persons: 0 is too few",
		groups + "rules:\n  - {" + ok + ", from: [{group: dba, persons: 3}]}\n":                            "rules[0].from: if all approve there would be 2 of 3: still one of dba (ann, bob)",
		"groups: {dba: [ann], sre: [ann]}\nrules:\n  - {" + ok + ", from: [{group: dba}, {group: sre}]}\n": "if all approve there would be 1 of 2",
		"groups: {dba: []}\nrules: [{" + ok + "}]\n":                                                       "policy.yaml:1: groups.dba: nobody is in it",
		"groups: {dba: [' ann']}\nrules: [{" + ok + "}]\n":                                                 `policy.yaml:1: groups.dba[0]: " ann" is no person's name`,
		"groups: {dba: [ann, ann@x]}\nrules: [{" + ok + "}]\n":                                             `policy.yaml:1: groups.dba[1]: "ann@x" is the same person as "ann"`,
		"groups: {d b: [ann]}\nrules: [{" + ok + "}]\n":                                                    `groups.d b: "d b" is no name`,
		"groups: [a]\nrules: [{" + ok + "}]\n":                                                             "policy.yaml:1: groups: must be a map from names to lists of texts, found a list",
		"rules: [{" + ok + "}]\nexamples:\n  - {want: ask}\n":                                              "policy.yaml:3: examples[0].name: it is missing",
		"rules: [{" + ok + "}]\nexamples:\n  - {name: n}\n":                                                `policy.yaml:3: examples[0].want: "" is not known; it must be one of allow, ask, deny, none`,
		"rules: [{" + ok + "}]\nexamples:\n  - {name: n, want: ask, rules: [b]}\n":                         `policy.yaml:3: examples[0].rules[0]: there is no rule "b"`,
		"rules: [{" + ok + "}]\nexamples:\n  - {name: n, want: ask, time: noon}\n":                         `examples[0].time: "noon" must be a time`,
		"rules: [{" + ok + "}]\nexamples:\n  - {name: n, want: ask, change: {risk: hihg}}\n":               `examples[0].change.risk: "hihg" is not known; did you mean high?`,
		"rules: [{" + ok + "}]\nexamples:\n  - {name: n, want: ask, change: {counts: [{deleted: 3}]}}\n":   "examples[0].change.counts[0].deleted: there is no such field",
		"rules: [\n": "policy.yaml:1: is not YAML: ",
	} {
		_, err := Load(write(t, content), "build-1")
		require.ErrorContains(t, err, want, content)
	}
	_, err := Load(filepath.Join(t.TempDir(), "gone.yaml"), "build-1")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestExamplesSayWhatDiffers(t *testing.T) {
	p := load(t, groups+`
rules:
  - {name: big, when: "change.counts.exists(c, c.removed > 1000)", then: ask, why: many rows go, from: [{group: dba}]}
  - {name: forced, when: "has(with.force) && with.force == true", then: deny}
  - {name: budget, when: "history.by[step.action] >= 50", then: ask}
  - {name: short, when: "change.horizon < duration('1h')", then: ask}
  - {name: nights, when: "time.getHours() < 6", then: deny}
examples:
  - {name: many rows, step: {action: postgres.exec}, change: {counts: [{of: a, removed: 1001}]}, want: ask, rules: [big]}
  - {name: few rows, change: {counts: [{of: a, removed: 1000}]}, want: none}
  - {name: by force, with: {force: true}, want: deny, rules: [forced]}
  - {name: the last of the budget, history: {steps: 49, by: {file.write: 49}}, want: none}
  - {name: past the budget, step: {action: file.write}, history: {by: {file.write: 50}}, want: ask, rules: [budget]}
  - {name: a short horizon, step: {action: a.b}, change: {horizon: 30m}, want: ask, rules: [short]}
  - {name: by night, time: 2026-01-05T05:59:00Z, want: deny}
  - {name: wrong verdict, change: {counts: [{of: a, removed: 1001}]}, want: allow}
  - {name: wrong rule, with: {force: true}, want: deny, rules: [nights]}
`)
	short := p.Version.Short()
	require.Equal(t, []Tried{
		{Example: "many rows"}, {Example: "few rows"}, {Example: "by force"}, {Example: "the last of the budget"},
		{Example: "past the budget"}, {Example: "a short horizon"}, {Example: "by night"},
		{"wrong verdict", "it is ask, by rules big@" + short + " (many rows go), and should be allow", ""},
		{"wrong rule", "it is deny as it should be, but, by rules forced@" + short + ", and not by nights", ""},
	}, p.TryExamples(t.Context()))
}

func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{1, 10} {
		var rules strings.Builder
		rules.WriteString(groups + "rules:\n")
		for i := range n {
			fmt.Fprintf(&rules, "  - {name: r%d, when: 'step.world == \"postgres\" && change.risk == \"high\" && change.counts.exists(c, c.removed > 1000)', then: ask, from: [{group: dba}]}\n", i)
		}
		p, c := load(b, rules.String()), deletion(5000)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if r := p.Judge(b.Context(), c); r == nil {
					b.Fatal("no rule matches")
				}
			}
		})
	}
}
