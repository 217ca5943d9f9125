package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// scripted is an action that answers as its functions say.
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

func (a scripted) Apply(context.Context, activities.Entry, activities.Step, activities.Digest) (activities.Result,
	error) {
	return a.apply(), nil
}

func (a scripted) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return a.undone, nil
}

func (a scripted) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return a.observed, nil
}

// executeActivity returns the result of an activity of a.
func executeActivity[T any](t *testing.T, a activities.Action, activity string, argument any) (v T) {
	t.Helper()
	encoded, err := newEnvironment(a).ExecuteActivity(activity, argument)
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
	f := forwardOfThisRun(withSecret) // so that everything is masked as well
	a := scripted{
		change: activities.Change{Summary: long, Diff: long, Risk: activities.Low, Undo: long, Losses: list, Facts: list,
			Keys: list},
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
	diff := func(s string) {
		t.Helper()
		require.LessOrEqual(t, len(s), activities.MaxDiff)
		require.Greater(t, len(s), activities.MaxDiff-100)
		require.Regexp(t, `é\n\.\.\. not shown: 1 more line, \d+ of \d+ bytes\n$`, s)
	}
	items := func(items []string) {
		t.Helper()
		require.Len(t, items, activities.MaxItems+1)
		for _, item := range items[:activities.MaxItems] {
			text(activities.MaxItem, item)
		}
		require.Equal(t, "and 950 more", items[activities.MaxItems])
	}

	change := executeActivity[activities.Change](t, a, "echo.say.plan", f)
	text(activities.MaxSummary, change.Summary)
	diff(change.Diff)
	text(activities.MaxText, change.Undo)
	items(change.Losses)
	require.Len(t, change.Facts, activities.MaxItems+1)
	require.Regexp(t, `^its diff of \d+ bytes is cut, so nobody can read all of it here; split the step to see the whole$`,
		change.Facts[0])
	require.Equal(t, activities.Medium, change.Risk)
	items(change.Keys)

	result := executeActivity[activities.Result](t, a, "echo.say", f)
	text(activities.MaxSummary, result.Summary)
	items(result.Notes)

	undone := executeActivity[activities.Undone](t, a, "echo.say.undo", activities.Backward{Entry: f.Entry})
	text(activities.MaxText, undone.Observed)
	items(undone.Losses)
	diff(undone.Drift.Diff)

	observed := executeActivity[activities.Observation](t, a, "echo.say.observe", f.Entry)
	text(activities.MaxText, observed.Detail)
	diff(observed.Drift.Diff)
}

// Each field of a change that is a text or a list is made too long: what is cut of it is said.
func TestAChangeSaysWhatOfItMayHaveBeenCut(t *testing.T) {
	fields := reflect.TypeFor[activities.Change]()
	var tried []string
	for i := range fields.NumField() {
		var c activities.Change
		switch to := reflect.ValueOf(&c).Elem().Field(i); {
		case to.Type() == reflect.TypeFor[string]():
			to.SetString(strings.Repeat("é", activities.MaxDiff))
		case to.Kind() == reflect.Slice:
			to.Set(reflect.MakeSlice(to.Type(), activities.MaxItems+1, activities.MaxItems+1))
		default:
			continue
		}
		got := executeActivity[activities.Change](t, scripted{change: c}, "echo.say.plan", forwardOfThisRun(`{}`))
		shown := reflect.ValueOf(got).Field(i)
		if shown.IsZero() || reflect.DeepEqual(shown.Interface(), reflect.ValueOf(c).Field(i).Interface()) {
			require.Empty(t, got.Cut()) // the wrapper's own, or whole
			continue
		}
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		require.Equal(t, []string{name}, got.Cut())
		tried = append(tried, name)
	}
	require.Subset(t, tried, []string{"summary", "diff", "undo", "losses", "facts", "counts", "schema", "keys"})
	lists := slices.Repeat([]string{"l"}, activities.MaxItems)
	require.Empty(t, activities.Change{Diff: "-a\n+b\n", Keys: lists}.Cut())
	require.Empty(t, activities.Change{}.Cut())
}

func TestShortTextsAreNotCapped(t *testing.T) {
	want := activities.Change{Summary: "s", Undo: "u", Strategy: activities.Snapshot, Horizon: activities.DefaultKeep,
		Losses: slices.Repeat([]string{"l"}, activities.MaxItems)}
	require.Equal(t, want,
		executeActivity[activities.Change](t, scripted{change: want}, "echo.say.plan", forwardOfThisRun(`{}`)))
}

// actionWithOutputs returns an action with these outputs.
func actionWithOutputs(outputs map[string]any) scripted {
	return scripted{apply: func() activities.Result { return activities.Result{Outputs: maps.Clone(outputs)} }}
}

func TestOutputsAreCappedLongestFirst(t *testing.T) {
	log := strings.Repeat("0123456789", activities.MaxOutputs)
	r := executeActivity[activities.Result](t, actionWithOutputs(map[string]any{
		"log": log, "page": strings.Repeat("<\n\"", activities.MaxOutputs), "list": []int{1, 2, 3}, "small": "kept",
	}), "echo.say", forwardOfThisRun(`{}`))
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), activities.MaxOutputs)
	require.Greater(t, len(raw), activities.MaxOutputs-20)
	require.Equal(t, "kept", r.Outputs["small"])
	require.Equal(t, []any{json.Number("1"), json.Number("2"), json.Number("3")}, r.Outputs["list"])
	require.Equal(t,
		[]string{"cut or left out, for the outputs to fit into 16384 bytes: page (163842 bytes), log (163842 bytes)"},
		r.Notes)
	require.True(t, strings.HasPrefix(log, strings.TrimSuffix(r.Outputs["log"].(string), " ...")))
}

func TestWhatAnUndoNeedsOfTheOutputsIsNeverCut(t *testing.T) {
	id := strings.Repeat("i", activities.MaxKnown/2)
	f := forwardOfThisRun(`{}`)
	f.Entry.UndoOutputs = []string{"id", "huge", "absent"}
	r := executeActivity[activities.Result](t, actionWithOutputs(map[string]any{
		"id": id, "huge": strings.Repeat("h", activities.MaxKnown), "log": strings.Repeat("l", activities.MaxOutputs),
	}), "echo.say", f)
	require.Equal(t, id, r.Outputs["id"])
	require.NotContains(t, r.Outputs, "huge", "half of it would name something else")
	require.True(t, strings.HasSuffix(r.Outputs["log"].(string), "l ..."))
	require.Len(t, r.Notes, 2)
	require.Equal(t, "left out, though the undo needs it, for it does not fit into 4096 bytes: huge", r.Notes[0])
	raw, err := json.Marshal(r.Outputs)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), activities.MaxOutputs)
	require.Equal(t, &activities.Result{Outputs: map[string]any{"id": id}}, f.Entry.Known(r))
	require.Nil(t, activities.Entry{}.Known(r))
}

func TestManyOutputsAreCappedAtOnce(t *testing.T) {
	outputs := map[string]any{}
	for i := range 100_000 {
		outputs[fmt.Sprintf("%0100d", i)] = "a value of some length"
	}
	began := time.Now()
	r := executeActivity[activities.Result](t, actionWithOutputs(outputs), "echo.say", forwardOfThisRun(`{}`))
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
			r := executeActivity[activities.Result](t, actionWithOutputs(map[string]any{
				"id": int64(math.MaxInt64), "list": []any{uint64(1<<53 + 1)},
			}), "echo.say", forwardOfThisRun(with))
			raw, err := json.Marshal(r.Outputs)
			require.NoError(t, err)
			require.Equal(t, `{"id":9223372036854775807,"list":[9007199254740993]}`, string(raw))
		})
	}
}

func TestAPanicIsAnErrorThatHidesSecrets(t *testing.T) {
	a := scripted{apply: func() activities.Result { panic(fmt.Errorf("index of %s", canary)) }}
	_, err := newEnvironment(a).ExecuteActivity("echo.say", forwardOfThisRun(withSecret))
	app := applicationError(t, err)
	require.Equal(t, string(activities.ActionFailed), app.Type())
	require.False(t, app.NonRetryable())
	require.Equal(t, "the action panicked: index of ***", app.Message())
	require.NoError(t, app.Unwrap())
}
