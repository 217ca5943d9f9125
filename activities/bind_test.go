package activities_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-62bf7108/unwind/activities"
)

const canary = `correct "horse" battery staple`

// echo is an action that lets every secret out, everywhere that it can.
type echo struct{ fail error }

func (a echo) Spec() activities.Spec { return activities.Spec{Name: "echo.say"} }

func (a echo) said(s activities.Step) string {
	var p struct{ Word string }
	_ = json.Unmarshal(s.With, &p)
	return p.Word
}

func (a echo) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	return activities.Change{
		Summary: strings.Repeat("x", activities.MaxSummary-10) + a.said(s), Diff: "+" + a.said(s), Losses: []string{a.said(s)},
	}, a.fail
}

func (a echo) Apply(ctx context.Context, _ activities.Entry, s activities.Step, _ activities.Digest) (activities.Result, error) {
	activities.MaskerFrom(ctx).Add("found on the way")
	if a.fail != nil {
		return activities.Result{}, fmt.Errorf("%w: %s", a.fail, a.said(s))
	}
	out := map[string]any{
		"word": a.said(s), "more": []any{map[string]any{a.said(s): base64.StdEncoding.EncodeToString([]byte(a.said(s)))}},
		"own": "this was found on the way",
	}
	return activities.Result{Summary: "said " + a.said(s), Outputs: out}, nil
}

func (a echo) Undo(_ context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Drifted, Observed: string(e.Params), Drift: &activities.Drift{Diff: string(e.Params)}}, a.fail
}

func (a echo) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsLeft, Detail: string(e.Params)}, a.fail
}

func (a echo) Release(_ context.Context, e activities.Entry) error {
	return errors.New("release of " + string(e.Params))
}

type source map[string]string

func (s source) Secret(name, _ string) (string, error) {
	v, ok := s[name]
	if !ok {
		return "", errors.New("this worker's config allows WORD")
	}
	return v, nil
}

func (s source) Values() []string { return slices.Collect(maps.Values(s)) }

// environment runs the activities of a.
func environment(a activities.Action) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	activities.NewRegistry(activities.World{
		Name: "echo", Actions: []activities.Action{a}, Journal: func(context.Context) (string, error) { return "j", nil },
	}).Register(env, activities.Host{Secrets: source{"WORD": canary, "TINY": "short"}})
	return env
}

// ofThisRun is a forward of the run that the test environment pretends to be.
func ofThisRun(with string) activities.Forward {
	return activities.Forward{
		Entry:         activities.Entry{Version: 1, Step: "s", Action: "echo.say", Token: "t", Params: json.RawMessage(with)},
		Step:          activities.Step{ID: "s", With: json.RawMessage(with)},
		OriginalRunID: "default-test-run-id",
	}
}

const withSecret = `{"word": "${{ secrets.WORD }}"}`

func TestNoSecretLeavesAnActivity(t *testing.T) {
	leaks := func(t *testing.T, v any) {
		t.Helper()
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		for _, form := range []string{canary, `correct \"horse\"`, "horse", base64.StdEncoding.EncodeToString([]byte(canary)), "found on the way"} {
			require.NotContains(t, string(raw), form)
		}
		require.Contains(t, string(raw), activities.Mask)
	}
	for name, a := range map[string]echo{"success": {}, "error": {fail: errors.New("no")}} {
		t.Run(name, func(t *testing.T) {
			env := environment(a)
			entry := ofThisRun(withSecret).Entry
			for activity, argument := range map[string]any{
				"echo.say": ofThisRun(withSecret), "echo.say.plan": ofThisRun(withSecret),
				"echo.say.undo": activities.Backward{Entry: entry}, "echo.say.observe": entry, "echo.say.release": entry,
			} {
				v, err := env.ExecuteActivity(activity, argument)
				if err != nil {
					require.NotContains(t, fmt.Sprintf("%v %+v", err, errors.Unwrap(err)), "horse", activity)
					continue
				}
				var out any
				require.NoError(t, v.Get(&out))
				leaks(t, out)
			}
		})
	}
}

func TestASecretCutInTwoByALimitIsStillMasked(t *testing.T) {
	v, err := environment(echo{}).ExecuteActivity("echo.say.plan", ofThisRun(withSecret))
	require.NoError(t, err)
	var c activities.Change
	require.NoError(t, v.Get(&c))
	require.NotContains(t, c.Summary, "correct")
	require.LessOrEqual(t, len(c.Summary), activities.MaxSummary)
}

func TestAFullDiskIsNamedWithTheWayOut(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/srv/journal/record", Err: syscall.ENOSPC}
	for name, c := range map[string]struct {
		fail error
		want string
	}{
		"as it comes":   {full, "a disk is full: write /srv/journal/record: no space left on device"},
		"with its type": {errors.Join(activities.Errorf(activities.Fenced, "too late"), full), "too late"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := environment(echo{fail: c.fail}).ExecuteActivity("echo.say.undo", activities.Backward{Entry: ofThisRun(`{}`).Entry})
			app := applicationError(t, err)
			require.Contains(t, app.Message(), c.want)
			require.Equal(t, c.fail == full, strings.Contains(app.Message(), "make room on it"))
		})
	}
}

func TestSecretsThatAreNotAllowedAreRefusedByName(t *testing.T) {
	for with, want := range map[string]string{
		`{"word": "${{ secrets.OTHER }}"}`: "secrets.OTHER: this worker's config allows WORD",
		`{"word": "${{secrets.TINY}}"}`:    "secrets.TINY: its value has 5 bytes; give it at least 8",
	} {
		_, err := environment(echo{}).ExecuteActivity("echo.say", ofThisRun(with))
		app := applicationError(t, err)
		require.Equal(t, string(activities.Refused), app.Type())
		require.True(t, app.NonRetryable())
		require.Contains(t, app.Message(), want)
	}
}

func applicationError(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app
}

func TestErrorsKeepTheirTypeAndOnlyFinalOnesAreFinal(t *testing.T) {
	for _, c := range []struct {
		err   error
		typ   activities.ErrorType
		final bool
		delay time.Duration
	}{
		{errors.New("connection lost"), activities.ActionFailed, false, 0},
		{fmt.Errorf("in a wrapper: %w", activities.Errorf(activities.CheckFailed, "no")), activities.CheckFailed, true, 0},
		{&activities.Error{Type: activities.ActionFailed, Message: "busy", NextRetry: time.Minute}, activities.ActionFailed, false, time.Minute},
	} {
		_, err := environment(echo{fail: c.err}).ExecuteActivity("echo.say", ofThisRun(`{}`))
		app := applicationError(t, err)
		require.Equal(t, string(c.typ), app.Type())
		require.Equal(t, c.final, app.NonRetryable())
		require.Equal(t, c.delay, app.NextRetryDelay())
		require.NoError(t, errors.Unwrap(app), "a cause would carry what is not masked")
	}
}

func TestAForwardOfAnotherRunIsRefusedAnUndoIsNot(t *testing.T) {
	f := ofThisRun(`{}`)
	f.OriginalRunID = "the run that this one was reset from"
	for _, activity := range []string{"echo.say", "echo.say.plan"} {
		_, err := environment(echo{}).ExecuteActivity(activity, f)
		require.Equal(t, string(activities.ResetRun), applicationError(t, err).Type())
	}
	_, err := environment(echo{}).ExecuteActivity("echo.say.undo", activities.Backward{Entry: f.Entry})
	require.NoError(t, err)
}

func TestAResetIsSeenBeforeAnythingElseIsWrong(t *testing.T) {
	f := ofThisRun(`{"word": "${{ secrets.GONE }}"}`)
	f.OriginalRunID = "the run that this one was reset from"
	for _, activity := range []string{"echo.say", "echo.say.plan"} {
		_, err := environment(echo{}).ExecuteActivity(activity, f)
		require.Equal(t, string(activities.ResetRun), applicationError(t, err).Type())
	}
}

func TestAnEntryOfAnotherFormatIsRefused(t *testing.T) {
	for _, version := range []int{0, activities.EntryVersion + 1} {
		e := ofThisRun(`{}`).Entry
		e.Version = version
		_, err := environment(echo{}).ExecuteActivity("echo.say.undo", activities.Backward{Entry: e})
		require.Equal(t, string(activities.UnknownFormat), applicationError(t, err).Type())
		require.ErrorContains(t, err, "recorded by a version that this one cannot undo")
		require.ErrorContains(t, err, "run a worker of the version that recorded it")
	}
}

// What one step has written from a secret, another one shows, which refers to none.
func TestASecretIsMaskedInACallThatDoesNotReferToIt(t *testing.T) {
	v, err := environment(echo{}).ExecuteActivity("echo.say", ofThisRun(fmt.Sprintf(`{"word": %q}`, "it says "+canary+" here")))
	require.NoError(t, err)
	var r activities.Result
	require.NoError(t, v.Get(&r))
	require.NotContains(t, fmt.Sprint(r), canary)
	require.Contains(t, fmt.Sprint(r), activities.Mask)
}
