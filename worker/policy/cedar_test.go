package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// writeCedar makes a policy file with rules, and beside it a file of Cedar policies.
func writeCedar(t testing.TB, rules, policies string) (file string) {
	t.Helper()
	file = write(t, "cedar: gateway.cedar\n"+rules)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "gateway.cedar"), []byte(policies), 0o600))
	return file
}

func loadCedar(t testing.TB, rules, policies string) *Policy {
	t.Helper()
	p, err := Load(writeCedar(t, rules, policies), "build-1")
	require.NoError(t, err)
	p.now = usualNow
	return p
}

// anything permits all that no other policy forbids.
const anything = "permit(principal, action, resource);\n"

func TestCedarVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		rules, policies string
		keys            []string // instead of postgres:shop
		want            string
	}{
		"a permit says nothing of the risk":          {"", anything, nil, none},
		"a permit that allows":                       {"", "@id(\"toys\") @verdict(\"allow\") @why(\"they are toys\") " + anything, nil, "allow cedar:toys (they are toys)"},
		"a permit that asks":                         {"", "@id(\"all-else\") @verdict(\"ask\") " + anything, nil, "ask cedar:all-else 1 person"},
		"of several permits the most lenient counts": {"", "@verdict(\"ask\") " + anything + anything, nil, none},
		"also one that allows":                       {"", "@verdict(\"ask\") " + anything + anything + "@verdict(\"allow\") " + anything, nil, "allow cedar:policy2"},
		"a forbid denies":                            {"", anything + "@id(\"no\") @why(\"not here\") forbid(principal, action, resource);", nil, "deny cedar:no (not here)"},
		"a forbid that asks":                         {"", anything + "@verdict(\"ask\") forbid(principal, action, resource);", nil, "ask cedar:policy1 1 person"},
		"a forbid that asks is stricter than a permit that allows": {"", "@verdict(\"allow\") " + anything + "@verdict(\"ask\") forbid(principal, action, resource);", nil,
			"ask cedar:policy1 1 person"},
		"all that forbid stand there": {"", anything + "forbid(principal, action, resource); forbid(principal, action, resource);", nil, "deny cedar:policy1 cedar:policy2"},
		"what nothing permits is denied": {"", "permit(principal, action, resource) when { context.change.risk == \"low\" };", nil,
			`deny cedar:no-permit (nothing permits it for Resource::"postgres:shop")`},
		"also if a forbid only asks": {"", "@verdict(\"ask\") forbid(principal, action, resource);", nil,
			`deny cedar:no-permit (nothing permits it for Resource::"postgres:shop")`},
		"a forbid that cannot be evaluated asks": {"", anything + "@id(\"f\") forbid(principal, action, resource) when { context.with.force };", nil,
			"ask cedar:f (it could not be evaluated: record does not have the attribute `force`) 1 person"},
		"and not if it asks first": {"", anything + "forbid(principal, action, resource) when { context.with has force && context.with.force };", nil, none},
		"another one may deny": {"", anything + "forbid(principal, action, resource) when { context.with.force }; @id(\"d\") forbid(principal, action, resource);", nil,
			"deny cedar:d"},
		"a permit that cannot be evaluated does not permit": {"", "@id(\"p\") permit(principal, action, resource) when { context.with.force };", nil,
			"deny cedar:no-permit (nothing permits it for Resource::\"postgres:shop\"; cedar:p: it could not be evaluated: record does not have the attribute `force`)"},
		"nor does one that allows, beside another": {"", anything + "@id(\"p\") @verdict(\"allow\") permit(principal, action, resource) when { context.with.force };", nil,
			"ask cedar:p (it could not be evaluated: record does not have the attribute `force`) 1 person"},
		"what is of the wrong type asks": {"", anything + "@id(\"f\") forbid(principal, action, resource) when { context.with.sql > 3 };", nil,
			"ask cedar:f (it could not be evaluated: type error: expected comparable value, got string) 1 person"},
		"a number that overflows asks": {"", anything + "@id(\"f\") forbid(principal, action, resource) when { context.change.removed + 9223372036854775807 > 3 };", nil,
			"ask cedar:f (it could not be evaluated: integer overflow while attempting to add `7` with `9223372036854775807`) 1 person"},
		"every resource must be permitted": {"", "permit(principal, action, resource in Resource::\"file:/srv/site\");", []string{"file:/srv/site/a", "file:/etc/b", "file:/srv/site2"},
			`deny cedar:no-permit (nothing permits it for Resource::"file:/etc/b")`},
		"and allowed":                    {"", anything + "@verdict(\"allow\") permit(principal, action, resource in Resource::\"file:/srv/site\");", []string{"file:/srv/site/a", "file:/etc/b"}, none},
		"all are":                        {"", "@verdict(\"allow\") permit(principal, action, resource in Resource::\"file:/srv/site\");", []string{"file:/srv/site/a/b", "file:/srv/site"}, "allow cedar:policy0"},
		"one resource is enough to deny": {"", anything + "@id(\"etc\") forbid(principal, action, resource in Resource::\"file:/etc\");", []string{"file:/srv/site/a", "file:/etc/b"}, "deny cedar:etc"},
		"all are below the root":         {"", "permit(principal, action, resource in Resource::\"file:/\");", []string{"file:/srv/site/a", "file:/etc", "file:/"}, none},
		"a pattern":                      {"", "permit(principal, action, resource) when { resource.key like \"file:/srv/*\" };", []string{"file:/srv/a"}, none},
		"a change that names none": {"", "permit(principal, action, resource) unless { resource == Resource::\"unknown\" };", []string{},
			`deny cedar:no-permit (nothing permits it for Resource::"unknown")`},
		"agent and action":                           {"", `permit(principal == Agent::"bot", action == Action::"postgres.exec", resource is Resource);`, nil, none},
		"an action is in its world":                  {"", `permit(principal is Agent, action in Action::"postgres", resource);`, nil, none},
		"and in no other":                            {"", anything + `forbid(principal, action in [Action::"sqlite", Action::"postgres.query"], resource);`, nil, none},
		"the strictest of rules and policies counts": {"rules: [{name: high, when: 'true', then: ask}]\n", "@verdict(\"allow\") " + anything, nil, "ask high 1 person"},
		"and those that agree stand together":        {"rules: [{name: high, when: 'true', then: deny}]\n", "@id(\"no\") forbid(principal, action, resource);" + anything, nil, "deny high cedar:no"},
		"all of a task and a step": {"", anything + `@id("all") forbid(principal, action, resource) when { context.task.id == "tidy-1" && context.task.agent == "bot" &&
			context.step.id == "tidy" && context.step.action == "postgres.exec" && context.step.world == "postgres" && context.step.host == context.host &&
			context.host == "build-1" };`, nil, "deny cedar:all"},
		"all of a change": {"", anything + `@id("all") forbid(principal, action, resource) when { context.change.summary == "delete" && context.change.risk == "high" &&
			context.change.strategy == "transaction" && context.change.undo == "put back" && context.change.losses == ["a sequence"] &&
			context.change.facts.contains("no WHERE") && context.change.schema == ["drop index"] && context.change.keys.contains("postgres:shop") &&
			context.change.added == 3 && context.change.removed == 7 && context.change.changed == 2 && !context.change.unchanged && context.change.diffBytes == 40000 &&
			context.change.horizon == duration("1h") && context.change.counts.contains({of: "b", added: 3, removed: 0, changed: 2, before: 0}) };`, nil, "deny cedar:all"},
		"all of a history": {"", anything + `@id("all") forbid(principal, action, resource) when { context.history.steps == 50 && context.history.by["file.write"] == 20 &&
			context.history.by["postgres.exec"] == 30 && !(context.history.by has "redis.set") && context.history.added == 1 && context.history.removed == 2 &&
			context.history.changed == 3 };`, nil, "deny cedar:all"},
		"time":          {"", anything + `@id("t") forbid(principal, action, resource) when { context.time.toTime() == duration("12h") };`, nil, "deny cedar:t"},
		"a long number": {"", anything + `@id("n") forbid(principal, action, resource) when { context.with.id == 9007199254740993 };`, nil, "deny cedar:n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deletion(7)
			if c.keys != nil {
				d.Change.Keys = c.keys
			}
			require.Equal(t, c.want, describe(loadCedar(t, c.rules, c.policies).Judge(t.Context(), d)))
		})
	}
}

func TestAParameterThatCedarDoesNotHave(t *testing.T) {
	for with, c := range map[string]struct{ when, want string }{
		`{"amount": 1.5}`:                       {`context.with.amount == decimal("1.5")`, "deny cedar:f"},
		`{"amount": 2.0}`:                       {`context.with.amount == 2`, "deny cedar:f"},
		`{"amount": -2e2}`:                      {`[1, -200].contains(context.with.amount)`, "deny cedar:f"},
		`{"amount": -0.5}`:                      {`context.with.amount.lessThan(decimal("0.0"))`, "deny cedar:f"},
		`{"amount": 9223372036854775808}`:       {`context.with.amount > 1`, "ask cedar:f (it could not be evaluated: type error: expected comparable value, got string) 1 person"},
		`{"amount": 1.00001}`:                   {`context.with.amount.greaterThan(decimal("1.0"))`, "ask cedar:f (it could not be evaluated: type error: expected decimal, got string) 1 person"},
		`{"amount": 1e300}`:                     {`context.with has amount && context.with.amount.greaterThan(decimal("1.0"))`, "ask cedar:f (it could not be evaluated: type error: expected decimal, got string) 1 person"},
		`{"amount": null}`:                      {`context.with has amount`, none},
		`{"list": [1, [2], {"a": true}, null]}`: {`context.with.list == [[2], {a: true}, 1]`, "deny cedar:f"},
	} {
		d := deletion(7)
		d.Step.With = json.RawMessage(with)
		p := loadCedar(t, "", anything+"@id(\"f\") forbid(principal, action, resource) when { "+c.when+" };")
		require.Equal(t, c.want, describe(p.Judge(t.Context(), d)), with)
	}
}

func TestNoAgentIsAnAgentWithoutAName(t *testing.T) {
	p := loadCedar(t, "", anything+`@id("named") forbid(principal == Agent::"", action, resource);`)
	d := deletion(7)
	require.Nil(t, p.Judge(t.Context(), d))
	d.Agent = ""
	require.Equal(t, "deny cedar:named", describe(p.Judge(t.Context(), d)))
}

func TestAHistoryIsReadOnlyForPoliciesThatNameIt(t *testing.T) {
	d := deletion(7)
	d.History = func() (activities.History, error) { return activities.History{}, os.ErrPermission }
	require.Nil(t, loadCedar(t, "", anything).Judge(t.Context(), d))
	require.Equal(t, "ask cedar:every-policy (it could not be evaluated: what the task has done before cannot be read: permission denied) 1 person",
		describe(loadCedar(t, "", anything+"forbid(principal, action, resource) when { context has history && context.history.steps > 50 };").Judge(t.Context(), d)))
	require.Contains(t, describe(loadCedar(t, "", anything+`forbid(principal, action, resource)
		when { context has "hist\u{6f}ry" && context["hist\u{6f}ry"].steps > 50 };`).Judge(t.Context(), d)), "ask cedar:every-policy", "however it is written")
}

func TestARulingNamesTheVersionOfEachEngine(t *testing.T) {
	p := loadCedar(t, "rules: [{name: high, when: 'true', then: deny}]\n", "@id(\"no\") forbid(principal, action, resource);"+anything)
	name := p.Judge(t.Context(), deletion(7)).Name()
	require.Equal(t, "rules high@"+p.Version.Short()+", cedar:no@57256d82e216", name, "what sha256sum says of the file")
	require.Equal(t, []string{"cedar gateway.cedar@57256d82e216"}, p.Engines())
	name = loadCedar(t, "", "@id(\"no\") forbid(principal, action, resource);"+anything).Judge(t.Context(), deletion(7)).Name()
	require.Equal(t, "rules cedar:no@57256d82e216", name)
}

func TestABadCedarFileIsRefused(t *testing.T) {
	when := func(condition string) string {
		return anything + "forbid(principal, action, resource)\nwhen { " + condition + " };"
	}
	for policies, want := range map[string]string{
		anything + "forbid(principal, action, resource) when { context.host == };": `policy.yaml:1: cedar: parse error at DIR/gateway.cedar:2:61 ";": invalid primary`,
		"":                         "policy.yaml:1: cedar: DIR/gateway.cedar has no policy, so it would deny everything",
		"@id(\"a b\") " + anything: `cedar: DIR/gateway.cedar:1:1: @id("a b") is no name; give it letters`,
		"@id(\"a\") " + anything + "@id(\"a\") " + anything:                                              `gateway.cedar:2: @id("a") is the name of another policy`,
		"@id(\"no-permit\") " + anything:                                                                 `gateway.cedar:1: @id("no-permit") is the name of another policy`,
		"@verdict(\"deny\") " + anything:                                                                 `gateway.cedar:1:1: @verdict("deny") is not known; a forbid has ask or deny`,
		"@verdict(\"allow\") forbid(principal, action, resource);":                                       `@verdict("allow") is not known`,
		"@verdict forbid(principal, action, resource);":                                                  `@verdict("") is not known`,
		"@verdcit(\"ask\") " + anything:                                                                  "@verdcit means nothing here; did you mean verdict?",
		"@why(\"" + strings.Repeat("x", 201) + "\") " + anything:                                         "@why has 201 bytes, and at most 200 are shown",
		when("context.change.riks == \"high\""):                                                          "gateway.cedar:2:1: there is no context.change.riks; did you mean risk?",
		when("context.change has losess"):                                                                "there is no context.change.losess; did you mean losses?",
		when("context has change.losess"):                                                                "there is no context.change.losess",
		when("context.chagne.risk == \"high\""):                                                          "there is no context.chagne; did you mean change?",
		when("context.nothing_like_it"):                                                                  "there is no context.nothing_like_it; a policy can look at resource.key, and of context at change.added,",
		when("principal.name == \"bot\""):                                                                "there is no principal.name",
		when("resource.name == \"bot\""):                                                                 "there is no resource.name",
		when("if true then {a: context.step.hots}.a == \"x\" else false"):                                "there is no context.step.hots",
		when("context.change.risk == \"hihg\""):                                                          `context.change.risk is never "hihg"; it is one of low, medium, high`,
		when("\"hihg\" != context.change.risk"):                                                          `context.change.risk is never "hihg"`,
		when("[\"low\", \"hihg\"].contains(context.change.risk)"):                                        `context.change.risk is never "hihg"`,
		when("[\"low\", \"hihg\"].containsAny(context.change.facts) || context.change.removed == \"7\""): "context.change.removed is a number, and never a text",
		when("principal == \"bot\""):                                                                     "principal is an entity, and never a text",
		when("resource == \"postgres:shop\""):                                                            "resource is an entity, and never a text",
		when("context.change.keys.contains(resource)"):                                                   "an item of context.change.keys is a text, and never an entity",
		when("context.change.keys.containsAny([\"a\", Resource::\"b\"])"):                                "an item of context.change.keys is a text, and never an entity",
		when("context.change.keys == \"a\""):                                                             "context.change.keys is a set, and never a text",
		when("[1, 2].contains(context.host)"):                                                            "context.host is a text, and never a number",
		when("context.time == \"2026-01-05T12:00:00Z\""):                                                 "context.time is a datetime, and never a text",
		when("resource.hasTag(\"prod\")"):                                                                "no entity has tags here",
		"permit(principal == User::\"bot\", action, resource);":                                          "there are no entities of type User; there are Agent, Action and Resource",
		"permit(principal is User, action, resource);":                                                   "there are no entities of type User",
		"permit(principal, action in [Action::\"a\", Verb::\"b\"], resource);":                           "there are no entities of type Verb",
		when("resource in Folder::\"file:/srv\""):                                                        "there are no entities of type Folder",
		anything + "forbid(principal, action, resource in Resource::\"file:/srv/\");":                    `no resource ends with a slash: write Resource::"file:/srv"`,
	} {
		file := writeCedar(t, "", policies)
		_, err := Load(file, "build-1")
		require.ErrorContains(t, err, strings.ReplaceAll(want, "DIR", filepath.Dir(file)), policies)
	}
	_, err := Load(write(t, "cedar: gone.cedar\n"), "build-1")
	require.ErrorContains(t, err, "policy.yaml:1: cedar: open ")
	require.ErrorContains(t, err, "gone.cedar: no such file or directory; name a file of Cedar policies, relative to this one")
	_, err = Load(write(t, "cedar: ''\n"), "build-1")
	require.ErrorContains(t, err, "policy.yaml:1: cedar: it is empty")
}

// Any names are left alone where a policy makes a record itself, or looks at parameters.
func TestCedarPoliciesThatAreRight(t *testing.T) {
	loadCedar(t, "", anything+`@advice("call us") forbid(principal, action, resource in Resource::"file:/") when {
		{entity: "a", "has": 1, ".": context.with.whatever.there["is"]}.entity == "b" && context.history.by["a.b"] > 3 &&
		context.with has a.b && context.change.keys.containsAny(["a"]) && context.change.horizon == duration("1h") && context.change.losses == context.change.facts &&
		context.change.losses.containsAll(context.change.facts) && context.change.keys.contains(resource.key) && [context.host, "b"].contains(context.step.host) &&
		!context.change.keys.contains(context.with.key) && context.with.keys.contains(resource.key) && context.with.keys.containsAny(context.change.keys) &&
		context.change.unchanged == false && context.change.added == context.change.removed && [resource].contains(resource) && action == Action::"a.b" &&
		context.with.a == 1 && ["low"].contains(context.change.risk) && context.change.keys == ["a"] && context.task.id == context.with.id && !(resource.key == "a") && [Agent::"a"].contains(principal) && ip("127.0.0.1").isLoopback() && resource.key like "*a" };`)
}

func TestExamplesAreTriedWithCedar(t *testing.T) {
	const rules = `
rules: [{name: big, when: 'change.removed > 10', then: ask}]
examples:
  - {name: allowed, step: {action: a.b}, change: {keys: ["file:/srv/a"]}, want: none}
  - {name: denied, change: {keys: ["file:/etc"]}, want: deny, rules: ["cedar:etc"]}
  - {name: unknown, want: deny, rules: ["cedar:no-permit"]}
  - {name: wrong, change: {keys: ["file:/etc"]}, want: allow}
`
	const policies = `permit(principal, action, resource in Resource::"file:/");
@id("etc") forbid(principal, action, resource in Resource::"file:/etc");`
	p := loadCedar(t, rules, policies)
	require.Equal(t, []Tried{{Example: "allowed"}, {Example: "denied"}, {Example: "unknown"},
		{Example: "wrong", Wrong: "it is deny, by rules cedar:etc@5bf6efd3007c, and should be allow"}}, p.TryExamples(t.Context()))
	_, err := Load(writeCedar(t, "examples: [{name: n, want: ask, rules: ['cedar:gone']}]\n", policies), "build-1")
	require.ErrorContains(t, err, `examples[0].rules[0]: there is no rule "cedar:gone"`)
}

// What a history of Temporal's does not tell is asked about, if a policy may look at it.
func TestCedarDoesNotTakeWhatIsUnknownForHarmless(t *testing.T) {
	past := func(policies string, change activities.Change) string {
		c := deletion(7)
		c.Change, c.Host = change, ""
		all, err := loadCedar(t, "", policies).JudgePast(t.Context(), []Past{{Case: c, Time: usualTime, IsPlanned: change.Summary != ""}})
		require.NoError(t, err)
		return describe(all[0])
	}
	whole := deletion(7).Change
	require.Equal(t, none, past(anything, whole))
	require.Equal(t, "ask cedar:every-policy (it looks at what the history of the task does not tell: host) 1 person",
		past(anything+"forbid(principal, action, resource) when { context.host == \"x\" };", whole))
	require.Equal(t, "ask cedar:every-policy (it looks at what the history of the task does not tell: change) 1 person", past(anything, activities.Change{}))
}

func BenchmarkCedar(b *testing.B) {
	p, c := loadCedar(b, "", strings.Repeat(anything+`forbid(principal, action in Action::"postgres", resource in Resource::"postgres:shop")
		when { context.change.risk == "high" && context.change.removed > 100000 };`+"\n", 5)), deletion(5000)
	for b.Loop() {
		if r := p.Judge(b.Context(), c); r != nil {
			b.Fatal(describe(r))
		}
	}
}
