package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestTheHorizonOfAChangeIsTheRollbackWindowOfItsTask(t *testing.T) {
	snapshot := activities.Change{Strategy: activities.Snapshot}
	for name, c := range map[string]struct {
		edit   func(*activities.Forward)
		change activities.Change
		want   time.Duration
	}{
		"by default":         {nil, snapshot, activities.DefaultKeep},
		"as the task says":   {func(f *activities.Forward) { f.Entry.Keep = 72 * time.Hour }, snapshot, 72 * time.Hour},
		"at a pivot":         {func(f *activities.Forward) { f.Entry.Pivot = true }, snapshot, 0},
		"before a pivot":     {func(f *activities.Forward) { f.BeforePivot = true }, snapshot, 0},
		"for good":           {nil, activities.Change{Strategy: activities.Irreversible}, 0},
		"of what only reads": {nil, activities.Change{Strategy: activities.NoUndo}, 0},
		"of no change":       {nil, activities.Change{Unchanged: true, Strategy: activities.Snapshot}, 0},
		"of a kind to come":  {nil, activities.Change{Strategy: "of a kind to come"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := forwardOfThisRun(`{}`)
			if c.edit != nil {
				c.edit(&f)
			}
			rules := &judges{}
			env := newEnvironment(planOf{change: c.change}, func(h *activities.Host) { h.Rules, h.Passes = rules, kept{} })
			got, err := env.ExecuteActivity("echo.say.plan", f)
			require.NoError(t, err)
			var planned activities.Change
			require.NoError(t, got.Get(&planned))
			require.Equal(t, c.want, planned.Horizon)
			require.Equal(t, c.want, rules.asked[0].Change.Horizon, "rules see it too")
		})
	}
}

// planOf is an action with one plan.
type planOf struct {
	echo
	change activities.Change
}

func (p planOf) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return p.change, nil
}

func assents(names ...string) (all []activities.Assent) {
	for _, name := range names {
		all = append(all, activities.Assent{Who: name})
	}
	return all
}

var (
	dba     = activities.Demand{Group: "dba", Persons: 1, Of: []string{"ann", "bob"}}
	twoDBAs = activities.Demand{Group: "dba", Persons: 2, Of: []string{"ann", "bob", "dan"}}
	sre     = activities.Demand{Group: "sre", Persons: 1, Of: []string{"cy", "ann"}}
	mail    = activities.Demand{Group: "mail", Persons: 1, Of: []string{"eve@example.com"}}
	anybody = activities.Demand{Persons: 1}
)

func TestEveryDemandIsMetByAnotherPerson(t *testing.T) {
	for name, c := range map[string]struct {
		demands []activities.Demand
		given   []activities.Assent
		waits   string
	}{
		"nobody yet":                        {[]activities.Demand{dba, sre}, nil, "0 of 2: still one of dba (ann, bob), and one of sre (cy, ann)"},
		"one of two":                        {[]activities.Demand{dba, sre}, assents("bob"), "1 of 2: still one of sre (cy, ann)"},
		"both":                              {[]activities.Demand{dba, sre}, assents("bob", "cy"), ""},
		"one person of both groups is one":  {[]activities.Demand{dba, sre}, assents("ann"), "1 of 2: still one of sre (cy, ann)"},
		"who is of both leaves room, first": {[]activities.Demand{dba, sre}, assents("ann", "bob"), ""},
		"who is of both leaves room, last":  {[]activities.Demand{dba, sre}, assents("cy", "ann"), ""},
		"one person twice":                  {[]activities.Demand{twoDBAs}, assents("ann", "ann"), "1 of 2: still one of dba (ann, bob, dan)"},
		"one person at two machines":        {[]activities.Demand{twoDBAs}, assents("ann@one", "Ann@two"), "1 of 2: still one of dba (ann, bob, dan)"},
		"two of a group":                    {[]activities.Demand{twoDBAs}, assents("ann@one", "dan"), ""},
		"somebody of no group":              {[]activities.Demand{dba}, assents("mallory"), "0 of 1: still one of dba (ann, bob)"},
		"the agent":                         {[]activities.Demand{anybody}, assents("bot", "bot@host"), "0 of 1: still 1 person"},
		"nobody by name":                    {[]activities.Demand{anybody}, assents("", "@host"), "0 of 1: still 1 person"},
		"anybody":                           {[]activities.Demand{anybody}, assents("mallory"), ""},
		"a whole address":                   {[]activities.Demand{mail}, assents("eve@example.com"), ""},
		"another address":                   {[]activities.Demand{mail}, assents("eve@elsewhere.com"), "0 of 1: still one of mail (eve@example.com)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &activities.Ruling{Verdict: activities.Asked, Demands: c.demands}
			require.Equal(t, c.waits, r.Waits("bot", c.given))
			require.Equal(t, c.waits == "", len(r.Missing("bot", c.given)) == 0)
		})
	}
}

func TestAnApprovalThatAddsNothingSaysWhy(t *testing.T) {
	r := &activities.Ruling{Verdict: activities.Asked, Rules: []activities.RuleMatch{{Name: "big"}},
		Version: activities.DigestOf([]byte("policy")), Demands: []activities.Demand{dba, {Group: "sre", Persons: 1, Of: []string{"cy"}}}}
	still := "; 1 of 2: still one of sre (cy)"
	for who, want := range map[string]string{
		"":         "it does not say who approves, and rules big@" + r.Version.Short() + " ask for 1 of 2: still one of sre (cy)",
		"bot@host": "bot@host is the agent of this task: another one must approve what it does",
		"ann@home": "ann@home has approved it already" + still,
		"mallory":  "mallory is in none of the groups that must approve" + still,
		"bob":      "of the group of bob enough have approved" + still,
	} {
		require.EqualError(t, r.Counts("bot", assents("ann"), activities.Assent{Who: who}), want)
	}
	require.NoError(t, r.Counts("bot", assents("ann"), activities.Assent{Who: "cy"}))
	require.NoError(t, (*activities.Ruling)(nil).Counts("bot", nil, activities.Assent{}), "a gate without rules takes anybody")
}

func TestWhatRulesLetPass(t *testing.T) {
	ruling := func(v activities.Verdict) *activities.Ruling {
		return &activities.Ruling{Verdict: v, Rules: []activities.RuleMatch{{Name: "r", Why: "because"}},
			Version: activities.DigestOf([]byte("policy"))}
	}
	asks := "the worker's policy asks: " + ruling(activities.Asked).Name() + " (because)"
	for name, c := range map[string]struct {
		change activities.Change
		by     activities.Consent
		want   string
	}{
		"high, allowed":                    {activities.Change{Risk: activities.High, Policy: ruling(activities.Allows)}, activities.Unasked, ""},
		"irreversible, allowed":            {activities.Change{Strategy: activities.Irreversible, Policy: ruling(activities.Allows)}, activities.Unasked, ""},
		"always asked, allowed":            {activities.Change{Ask: true, Policy: ruling(activities.Allows)}, activities.Unasked, "this change is always asked"},
		"below the floor, allowed":         {activities.Change{Floor: "the floor", Policy: ruling(activities.Allows)}, activities.Unasked, "the floor"},
		"repeated, allowed":                {activities.Change{Repeats: "again", Policy: ruling(activities.Allows)}, activities.Waived, "again"},
		"low, asked":                       {activities.Change{Risk: activities.Low, Policy: ruling(activities.Asked)}, activities.Unasked, asks},
		"unchanged, asked":                 {activities.Change{Unchanged: true, Policy: ruling(activities.Asked)}, activities.Unasked, asks},
		"gate: none, asked":                {activities.Change{Risk: activities.Low, Policy: ruling(activities.Asked)}, activities.Waived, asks},
		"asked twice over":                 {activities.Change{Floor: "the floor", Policy: ruling(activities.Asked)}, activities.Waived, asks + "; the floor"},
		"asked and approved":               {activities.Change{Policy: ruling(activities.Asked)}, activities.Approved, ""},
		"no rule matches, of high risk":    {activities.Change{Risk: activities.High}, activities.Unasked, "its risk is high"},
		"no rule matches, of no high risk": {activities.Change{Risk: activities.Medium}, activities.Unasked, ""},
	} {
		require.Equal(t, c.want, c.change.Asks(c.by), name)
	}
}
