package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestMostOfASetIsMoreThanHalfOfItAndAtLeastTen(t *testing.T) {
	for _, c := range []struct {
		items, total int64
		most         bool
	}{{9, 9, false}, {10, 10, true}, {10, 19, true}, {10, 20, false}, {11, 21, true}, {0, 0, false}} {
		require.Equal(t, c.most, activities.MostOf(c.items, c.total), "%d of %d", c.items, c.total)
	}
}

// judged is an action that has a change of its own judged.
type judged struct {
	echo
	change activities.Change
	reads  bool
}

func (a judged) Spec() activities.Spec { return activities.Spec{Name: "echo.say", ReadOnly: a.reads} }

func (a judged) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return a.change, nil
}

func (a judged) Apply(ctx context.Context, _ activities.Entry, _ activities.Step,
	_ activities.Digest) (activities.Result, error) {
	if a.reads {
		return activities.Result{}, nil
	}
	return activities.Result{}, activities.Judge(ctx, a.change)
}

func TestAForwardIsJudgedByItsChangeItsConsentAndTheFloor(t *testing.T) {
	low, high := activities.Change{Risk: activities.Low}, activities.Change{Risk: activities.High}
	asks, final := activities.Change{Ask: true}, activities.Change{Risk: activities.Low, Strategy: activities.Irreversible}
	nothing := activities.Change{Risk: activities.High, Unchanged: true}
	always := activities.Floors{"*": activities.FromHigh, "echo.*": activities.Always}
	for name, c := range map[string]struct {
		action  judged
		floors  activities.Floors
		consent activities.Consent
		bare    bool // nothing is said of what was approved
		why     string
	}{
		"low":                    {action: judged{change: low}},
		"high":                   {action: judged{change: high}, why: "its risk is high"},
		"high and nothing to do": {action: judged{change: nothing}},
		"irreversible":           {action: judged{change: final}, why: "it cannot be undone"},
		"approved":               {action: judged{change: asks}, floors: always, consent: activities.Approved},
		"approved, but not what": {action: judged{change: high}, consent: activities.Approved, bare: true,
			why: "its risk is high"},
		"waived":                  {action: judged{change: high}, consent: activities.Waived},
		"waived, but it destroys": {action: judged{change: asks}, consent: activities.Waived, why: "always asked"},
		"waived below a floor": {action: judged{change: high}, floors: activities.Floors{"*": activities.FromHigh},
			consent: activities.Waived, why: `gates: {"*": high}`},
		"low above that floor": {action: judged{change: low}, floors: activities.Floors{"*": activities.FromHigh}},
		"the strictest floor counts": {action: judged{change: low}, floors: always, consent: activities.Waived,
			why: `gates: {"echo.*": always}`},
		"nothing to do below a floor": {action: judged{change: nothing}, floors: always, why: `gates: {"echo.*": always}`},
		"a floor of others": {action: judged{change: low},
			floors: activities.Floors{"file.*": activities.Always}},
		"a pattern means no reading": {action: judged{reads: true}, floors: always},
		"what only reads may be named": {action: judged{reads: true},
			floors: activities.Floors{"echo.say": activities.Always}, why: `gates: {"echo.say": always}`},
		"what only reads, and approved": {action: judged{reads: true},
			floors: activities.Floors{"echo.say": activities.Always}, consent: activities.Approved},
	} {
		f := forwardOfThisRun(`{}`)
		f.Consent = c.consent
		if !c.bare {
			f.Want = "sha256:x"
		}
		env := newEnvironment(c.action, func(h *activities.Host) { h.Floors = c.floors })
		_, err := env.ExecuteActivity("echo.say", f)
		if c.why == "" {
			require.NoError(t, err, name)
			continue
		}
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app, name)
		require.Equal(t, string(activities.Asks), app.Type(), name)
		require.True(t, app.NonRetryable(), name)
		require.Contains(t, app.Message(), c.why, name)
	}
	change := executeActivity[activities.Change](t, judged{change: low}, "echo.say.plan", forwardOfThisRun(`{}`))
	require.Empty(t, change.Floor)
}
