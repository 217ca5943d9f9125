package activities_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// ahead is a valve whose plan a test says.
type ahead struct {
	valve

	change    activities.Change
	mayChange []string
}

func (a *ahead) Spec() activities.Spec {
	return activities.Spec{Name: "echo.say", Keys: []activities.Key{}, MayChange: a.mayChange}
}

func (a *ahead) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	a.planned++
	c := a.change
	c.Digest = activities.DigestOf([]byte(a.target))
	return c, nil
}

// keeper keeps allowances in memory.
type keeper struct {
	given   []activities.GivenAllowance
	touched []string
	silent  error
}

func (k *keeper) Given(context.Context) ([]activities.GivenAllowance, error) {
	return k.given, k.silent
}

func (k *keeper) Touched(context.Context, string, activities.Step) ([]string, error) {
	return k.touched, nil
}

func (k *keeper) Use(_ context.Context, g activities.GivenAllowance, u activities.AllowanceUse) error {
	for i := range k.given {
		if k.given[i].ID == g.ID {
			return k.given[i].Use(u)
		}
	}
	return errors.New("there is none")
}

// allowance is one of ann, for two changes of bot below /srv/site.
func allowance() activities.Allowance {
	at := time.Now().UTC().Truncate(time.Second)
	return activities.Allowance{Agent: "bot", Actions: []string{"echo.say"}, Under: []string{"file:/srv/site"},
		Risk: activities.Medium, Uses: 2, At: at, Until: at.Add(time.Hour), Who: "ann", Why: "the release"}
}

func given(a activities.Allowance) activities.GivenAllowance {
	return activities.GivenAllowance{Allowance: a, ID: a.ID()}
}

// reversible is a change of medium risk to a file.
func reversible(keys ...string) activities.Change {
	return activities.Change{Risk: activities.Medium, Strategy: activities.Snapshot, Keys: keys}
}

func TestAStandingApprovalCoversWhatItSaysAndNothingElse(t *testing.T) {
	const page = "file:/srv/site/index.html"
	for name, c := range map[string]struct {
		allow   func(*activities.GivenAllowance)
		change  activities.Change
		touched []string
		forward func(*activities.Forward)
		covers  bool

		mayChange []string
	}{
		"a file below the folder":     {nil, reversible(page), []string{page}, nil, true, nil},
		"the folder itself":           {nil, reversible("file:/srv/site"), nil, nil, true, nil},
		"a folder beside it":          {nil, reversible("file:/srv/site2/a"), nil, nil, false, nil},
		"another case":                {nil, reversible("file:/srv/Site/a"), nil, nil, false, nil},
		"a way out":                   {nil, reversible("file:/srv/site/../x"), nil, nil, false, nil},
		"a link that leads elsewhere": {nil, reversible(page), []string{page, "file:/etc/passwd"}, nil, false, nil},
		"one of several hard links":   {nil, reversible(page), []string{page, "inode:1:2"}, nil, false, nil},
		"a second file elsewhere":     {nil, reversible(page, "file:/etc/passwd"), nil, nil, false, nil},
		"what nobody can name":        {nil, reversible(), nil, nil, false, nil},
		"another agent":               {nil, reversible(page), nil, func(f *activities.Forward) { f.Agent = "Bot" }, false, nil},
		"no agent":                    {nil, reversible(page), nil, func(f *activities.Forward) { f.Agent = "" }, false, nil},
		"another action":              {func(g *activities.GivenAllowance) { g.Actions = []string{"echo.shout"} }, reversible(page), nil, nil, false, nil},
		"all of the world":            {func(g *activities.GivenAllowance) { g.Actions = []string{"echo.*"} }, reversible(page), nil, nil, true, nil},
		"another task":                {func(g *activities.GivenAllowance) { g.Tasks = []string{"other"} }, reversible(page), nil, nil, false, nil},
		"this task": {func(g *activities.GivenAllowance) { g.Tasks = []string{"default-test-workflow-id"} },
			reversible(page), nil, nil, true, nil},
		"a higher risk": {nil, activities.Change{Risk: activities.High, Strategy: activities.Snapshot, Keys: []string{page}},
			nil, nil, false, nil},
		"what cannot be undone, though its risk is low": {nil,
			activities.Change{Risk: activities.Low, Strategy: activities.Irreversible, Keys: []string{page}}, nil, nil, false, nil},
		"what nobody has said how to undo": {nil, activities.Change{Risk: activities.Low, Keys: []string{page}}, nil, nil, false, nil},
		"what a pivot makes final": {nil, reversible(page), nil,
			func(f *activities.Forward) { f.BeforePivot = true }, false, nil},
		"what is always asked": {nil, activities.Change{Risk: activities.Low, Strategy: activities.Snapshot, Ask: true,
			Keys: []string{page}}, nil, nil, false, nil},
		"what cannot be undone, where that is said": {func(g *activities.GivenAllowance) { g.Risk = activities.High },
			activities.Change{Risk: activities.Low, Strategy: activities.Irreversible, Ask: true, Keys: []string{page}}, nil, nil, true, nil},
		"after its end":                      {func(g *activities.GivenAllowance) { g.Until = time.Now() }, reversible(page), nil, nil, false, nil},
		"once it is revoked":                 {func(g *activities.GivenAllowance) { g.Revoked = &activities.Revocation{Who: "bob"} }, reversible(page), nil, nil, false, nil},
		"once it is used up":                 {func(g *activities.GivenAllowance) { g.Used = make([]activities.AllowanceUse, 2) }, reversible(page), nil, nil, false, nil},
		"while a use is left":                {func(g *activities.GivenAllowance) { g.Used = make([]activities.AllowanceUse, 1) }, reversible(page), nil, nil, true, nil},
		"what may change more than it names": {nil, reversible(page), nil, nil, false, []string{"file:"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := given(allowance())
			if c.allow != nil {
				c.allow(&g)
			}
			f := forwardOfThisRun(`{}`)
			f.Agent = "bot"
			if c.forward != nil {
				c.forward(&f)
			}
			v := &ahead{valve: valve{target: "t", risk: activities.Medium}, change: c.change, mayChange: c.mayChange}
			k := &keeper{given: []activities.GivenAllowance{g}, touched: c.touched}
			env := newEnvironment(v, func(h *activities.Host) { h.Allowances, h.Passes = k, kept{} })
			got, err := env.ExecuteActivity("echo.say.plan", f)
			require.NoError(t, err)
			var planned activities.Change
			require.NoError(t, got.Get(&planned))
			require.Equal(t, c.covers, len(planned.Standing) == 1, "when it is planned")

			f.Consent, f.Want = activities.Approved, planned.Digest
			f.Assents = []activities.Assent{{Who: g.Who, Allowance: g.ID}}
			_, err = env.ExecuteActivity("echo.say", f)
			if c.covers {
				require.NoError(t, err)
				require.Equal(t, 1, v.applied)
				return
			}
			require.Equal(t, string(activities.StaleApproval), applicationError(t, err).Type(), "and when it acts")
			require.Zero(t, v.applied)
		})
	}
}

func TestAStandingApprovalIsCountedOnceForAChange(t *testing.T) {
	k := &keeper{given: []activities.GivenAllowance{given(allowance())}}
	act := func(token, target string) (activities.Result, error) {
		// each call has passes of its own, as on another host, or on one that died before it kept any
		v := &ahead{valve: valve{target: target, risk: activities.Medium}, change: reversible("file:/srv/site/a")}
		env := newEnvironment(v, func(h *activities.Host) { h.Allowances, h.Passes = k, kept{} })
		f := forwardOfThisRun(`{}`)
		f.Agent, f.Entry.Token, f.Consent, f.Want = "bot", token, activities.Approved, activities.DigestOf([]byte(target))
		f.Assents = []activities.Assent{{Who: "ann", Allowance: k.given[0].ID}}
		got, err := env.ExecuteActivity("echo.say", f)
		var r activities.Result
		if err == nil {
			require.NoError(t, got.Get(&r))
		}
		return r, err
	}
	for _, want := range []struct{ token, target, used string }{
		{"a", "x", "1 of 2"}, {"a", "x", "1 of 2"}, {"a", "y", "2 of 2"}, {"a", "x", "2 of 2"},
	} {
		r, err := act(want.token, want.target)
		require.NoError(t, err)
		require.Equal(t, []string{"standing approval " + k.given[0].ID + ": " + want.used + " used"}, r.Notes)
	}
	_, err := act("b", "x")
	require.Contains(t, applicationError(t, err).Message(), "it is used up: 2 of 2")
	k.given[0].Revoked = &activities.Revocation{Who: "bob"}
	_, err = act("a", "x")
	require.Contains(t, applicationError(t, err).Message(), "it was revoked by bob")
}

// Whoever hands a worker an approval by a standing one cannot say whose it is, nor that there is one.
func TestAClaimedStandingApprovalIsRefused(t *testing.T) {
	id := given(allowance()).ID
	for name, c := range map[string]struct {
		assents []activities.Assent
		keeper  *keeper
	}{
		"of another person": {[]activities.Assent{{Who: "cy", Allowance: id}}, &keeper{given: []activities.GivenAllowance{given(allowance())}}},
		"made up":           {[]activities.Assent{{Who: "ann", Allowance: "0123456789ab"}}, &keeper{given: []activities.GivenAllowance{given(allowance())}}},
		"of a silent one":   {[]activities.Assent{{Who: "ann", Allowance: id}}, &keeper{silent: errors.New("no answer")}},
	} {
		v := &ahead{valve: valve{target: "t", risk: activities.Medium}, change: reversible("file:/srv/site/a")}
		env := newEnvironment(v, func(h *activities.Host) { h.Allowances, h.Passes = c.keeper, kept{} })
		f := forwardOfThisRun(`{}`)
		f.Agent, f.Consent, f.Want, f.Assents = "bot", activities.Approved, activities.DigestOf([]byte("t")), c.assents
		_, err := env.ExecuteActivity("echo.say", f)
		require.Equal(t, string(activities.StaleApproval), applicationError(t, err).Type(), name)
		require.Zero(t, v.applied, name)
	}
}

func TestAPersonIsAskedWhileStandingApprovalsCannotBeTold(t *testing.T) {
	v := &ahead{valve: valve{target: "t"}, change: reversible("file:/srv/site/a")}
	env := newEnvironment(v, func(h *activities.Host) { h.Allowances = &keeper{silent: errors.New("no answer")} })
	got, err := env.ExecuteActivity("echo.say.plan", forwardOfThisRun(`{}`))
	require.NoError(t, err)
	var planned activities.Change
	require.NoError(t, got.Get(&planned))
	require.Empty(t, planned.Standing)
	require.Equal(t, []string{"whether a standing approval covers it cannot be told: no answer"}, planned.Facts)
}

func TestAStandingApprovalNeedsItsBounds(t *testing.T) {
	require.NoError(t, allowance().Check())
	for why, change := range map[string]func(*activities.Allowance){
		"agent is missing":                  func(a *activities.Allowance) { a.Agent = "" },
		"ann cannot approve what it does":   func(a *activities.Allowance) { a.Agent = "ann@laptop" },
		"who is missing":                    func(a *activities.Allowance) { a.Who = "" },
		"action is missing":                 func(a *activities.Allowance) { a.Actions = nil },
		`action "*": name an action`:        func(a *activities.Allowance) { a.Actions = []string{"*"} },
		`action "file.w*": name an action`:  func(a *activities.Allowance) { a.Actions = []string{"file.w*"} },
		"under is missing":                  func(a *activities.Allowance) { a.Under = nil },
		`under "srv": name a resource`:      func(a *activities.Allowance) { a.Under = []string{"srv"} },
		`under "file:/": name a resource`:   func(a *activities.Allowance) { a.Under = []string{"file:/"} },
		"write it as file:/etc":             func(a *activities.Allowance) { a.Under = []string{"file:/srv/../etc"} },
		"write it as file:/srv":             func(a *activities.Allowance) { a.Under = []string{"file:/srv/"} },
		`task "": give the id`:              func(a *activities.Allowance) { a.Tasks = []string{""} },
		`risk "": give low, medium or high`: func(a *activities.Allowance) { a.Risk = "" },
		"uses 0: give 1 to 100":             func(a *activities.Allowance) { a.Uses = 0 },
		"uses 101: give 1 to 100":           func(a *activities.Allowance) { a.Uses = 101 },
		"it must be later than now":         func(a *activities.Allowance) { a.Until = a.At },
		"give at most 7 days":               func(a *activities.Allowance) { a.Until = a.At.Add(7*24*time.Hour + 1) },
		"more than 4096":                    func(a *activities.Allowance) { a.Why = string(make([]byte, 4096)) },
	} {
		a := allowance()
		change(&a)
		require.ErrorContains(t, a.Check(), why)
	}
}
