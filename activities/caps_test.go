package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// scripted answers what it was given, where it was given something.
type scripted struct {
	echo
	change   activities.Change
	apply    func() activities.Result
	undone   activities.Undone
	observed activities.Observation
}

func (a scripted) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return a.change, nil
}

func (a scripted) Apply(context.Context, activities.Entry, activities.Step, activities.Digest) (activities.Result, error) {
	return a.apply(), nil
}

func (a scripted) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return a.undone, nil
}

func (a scripted) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return a.observed, nil
}

// answer is what an activity of a returned.
func answer[T any](t *testing.T, a activities.Action, activity string, argument any) (v T) {
	t.Helper()
	encoded, err := environment(a).ExecuteActivity(activity, argument)
	require.NoError(t, err)
	require.NoError(t, encoded.Get(&v))
	return v
}

func TestEveryTextAndListThatAnActionReturnsIsCapped(t *testing.T) {
	long := strings.Repeat("é", activities.MaxDiff)
	list := make([]string, 1000)
	for i := range list {
		list[i] = strings.Repeat("é", activities.MaxItem)
	}
	drift := func() *activities.Drift { return &activities.Drift{Digest: "sha256:d", Diff: long} }
	f := ofThisRun(withSecret) // so that everything goes through the mask as well
	a := scripted{
		change:   activities.Change{Summary: long, Diff: long, Undo: long, Losses: list, Facts: list, Keys: list},
		apply:    func() activities.Result { return activities.Result{Summary: long, Notes: list} },
		undone:   activities.Undone{Observed: long, Losses: list, Drift: drift()},
		observed: activities.Observation{Detail: long, Drift: drift()},
	}
	text := func(limit int, s string) {
		t.Helper()
		require.LessOrEqual(t, len(s), limit)
		require.Greater(t, len(s), limit-10)
		require.True(t, strings.HasSuffix(s, "é ..."), "cut between two letters, and it says so")
	}
	items := func(items []string) {
		t.Helper()
		require.Len(t, items, activities.MaxItems+1)
		for _, item := range items[:activities.MaxItems] {
			text(activities.MaxItem, item)
		}
		require.Equal(t, "and 950 more", items[activities.MaxItems])
	}

	change := answer[activities.Change](t, a, "echo.say.plan", f)
	text(activities.MaxSummary, change.Summary)
	text(activities.MaxDiff, change.Diff)
	text(activities.MaxText, change.Undo)
	items(change.Losses)
	items(change.Facts)
	items(change.Keys)

	result := answer[activities.Result](t, a, "echo.say", f)
	text(activities.MaxSummary, result.Summary)
	items(result.Notes)

	undone := answer[activities.Undone](t, a, "echo.say.undo", activities.Backward{Entry: f.Entry})
	text(activities.MaxText, undone.Observed)
	items(undone.Losses)
	text(activities.MaxDiff, undone.Drift.Diff)

	observed := answer[activities.Observation](t, a, "echo.say.observe", f.Entry)
	text(activities.MaxText, observed.Detail)
	text(activities.MaxDiff, observed.Drift.Diff)
}

func TestWhatIsShortEnoughStaysAsItIs(t *testing.T) {
	want := activities.Change{Summary: "s", Undo: "u", Losses: slices.Repeat([]string{"l"}, activities.MaxItems)}
	require.Equal(t, want, answer[activities.Change](t, scripted{change: want}, "echo.say.plan", ofThisRun(`{}`)))
}

// saying is an action with these outputs.
func saying(outputs map[string]any) scripted {
	return scripted{apply: func() activities.Result { return activities.Result{Outputs: maps.Clone(outputs)} }}
}

func TestOutputsAreCappedLongestFirst(t *testing.T) {
	log := strings.Repeat("0123456789", activities.MaxOutputs)
	r := answer[activities.Result](t, saying(map[string]any{
		"log": log, "page": strings.Repeat("<\n\"", activities.MaxOutputs), "list": []int{1, 2, 3}, "small": "kept",
	}), "echo.say", ofThisRun(`{}`))
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), activities.MaxOutputs)
	require.Greater(t, len(raw), activities.MaxOutputs-20)
	require.Equal(t, "kept", r.Outputs["small"])
	require.Equal(t, []any{json.Number("1"), json.Number("2"), json.Number("3")}, r.Outputs["list"])
	require.Equal(t, []string{"cut or left out, for the outputs to fit into 16384 bytes: page (163842 bytes), log (163842 bytes)"}, r.Notes)
	require.True(t, strings.HasPrefix(log, strings.TrimSuffix(r.Outputs["log"].(string), " ...")))
}

func TestManyOutputsAreCappedAtOnce(t *testing.T) {
	outputs := map[string]any{}
	for i := range 100_000 {
		outputs[fmt.Sprintf("%0100d", i)] = "a value of some length"
	}
	began := time.Now()
	r := answer[activities.Result](t, saying(outputs), "echo.say", ofThisRun(`{}`))
	require.Less(t, time.Since(began), 2*time.Minute, "not the square of them")
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), activities.MaxOutputs)
	require.NotEmpty(t, r.Outputs)
	require.Len(t, r.Notes, 1)
	require.LessOrEqual(t, len(r.Notes[0]), activities.MaxItem)
}

func TestALongNumberIsNotRounded(t *testing.T) {
	for name, with := range map[string]string{"masked": withSecret, "no secret": `{}`} {
		t.Run(name, func(t *testing.T) {
			r := answer[activities.Result](t, saying(map[string]any{
				"id": int64(math.MaxInt64), "list": []any{uint64(1<<53 + 1)},
			}), "echo.say", ofThisRun(with))
			raw, err := json.Marshal(r.Outputs)
			require.NoError(t, err)
			require.Equal(t, `{"id":9223372036854775807,"list":[9007199254740993]}`, string(raw))
		})
	}
}

func TestAPanicIsAnErrorThatHidesSecrets(t *testing.T) {
	a := scripted{apply: func() activities.Result { panic(fmt.Errorf("index of %s", canary)) }}
	_, err := environment(a).ExecuteActivity("echo.say", ofThisRun(withSecret))
	app := applicationError(t, err)
	require.Equal(t, string(activities.ActionFailed), app.Type())
	require.False(t, app.NonRetryable())
	require.Equal(t, "the action panicked: index of ***", app.Message())
	require.NoError(t, app.Unwrap())
}
