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
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
)

const canary = `correct "horse" battery staple`

// echo is an action that reveals secrets everywhere it can.
type echo struct{ fail error }

func (a echo) Spec() activities.Spec { return activities.Spec{Name: "echo.say"} }

func (a echo) revealSecret(s activities.Step) string {
	var p struct{ Word string }
	_ = json.Unmarshal(s.With, &p)
	return p.Word
}

func (a echo) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	return activities.Change{
		Summary: strings.Repeat("x", activities.MaxSummary-10) + a.revealSecret(s), Diff: "+" + a.revealSecret(s),
		Losses: []string{a.revealSecret(s)},
	}, a.fail
}

func (a echo) Apply(ctx context.Context, _ activities.Entry, s activities.Step, _ activities.Digest) (activities.Result,
	error) {
	activities.MaskerFrom(ctx).Add("found on the way")
	if a.fail != nil {
		return activities.Result{}, fmt.Errorf("%w: %s", a.fail, a.revealSecret(s))
	}
	out := map[string]any{
		"word": a.revealSecret(s),
		"more": []any{map[string]any{a.revealSecret(s): base64.StdEncoding.EncodeToString([]byte(a.revealSecret(s)))}},
		"own":  "this was found on the way",
	}
	return activities.Result{Summary: "said " + a.revealSecret(s), Outputs: out}, nil
}

func (a echo) Undo(_ context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Drifted, Observed: string(e.Params),
		Drift: &activities.Drift{Diff: string(e.Params)}}, a.fail
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

// newEnvironment makes a test environment with the activities of a.
func newEnvironment(a activities.Action, edit ...func(*activities.Host)) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	host := activities.Host{Secrets: source{"WORD": canary, "TINY": "short"}}
	for _, e := range edit {
		e(&host)
	}
	activities.NewRegistry(activities.World{
		Name: "echo", Actions: []activities.Action{a}, Journal: func(context.Context) (string, error) { return "j", nil },
	}).Register(env, host)
	return env
}

// forwardOfThisRun returns a forward of the run that the test environment simulates.
func forwardOfThisRun(with string) activities.Forward {
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
		for _, form := range []string{canary, `correct \"horse\"`, "horse", base64.StdEncoding.EncodeToString([]byte(canary)),
			"found on the way"} {
			require.NotContains(t, string(raw), form)
		}
		require.Contains(t, string(raw), activities.Mask)
	}
	for name, a := range map[string]echo{"success": {}, "error": {fail: errors.New("no")}} {
		t.Run(name, func(t *testing.T) {
			env := newEnvironment(a)
			entry := forwardOfThisRun(withSecret).Entry
			for activity, argument := range map[string]any{
				"echo.say": forwardOfThisRun(withSecret), "echo.say.plan": forwardOfThisRun(withSecret),
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

// slow is an action whose forward ends with its context.
type slow struct {
	echo
	succeeds bool
}

func (a slow) Apply(ctx context.Context, _ activities.Entry, _ activities.Step, _ activities.Digest) (activities.Result,
	error) {
	<-ctx.Done()
	if a.succeeds {
		return activities.Result{Summary: "done"}, nil
	}
	return activities.Result{}, ctx.Err()
}

// A worker that serves workflows too cancels the calls of its actions before it closes their stop
// channel.
func TestACallThatIsCutOffByItsStoppingWorkerSaysSo(t *testing.T) {
	for name, a := range map[string]slow{"fails": {}, "succeeds": {succeeds: true}} {
		t.Run(name, func(t *testing.T) {
			env := newEnvironment(a)
			stopping, stop := context.WithCancelCause(t.Context())
			env.SetWorkerOptions(worker.Options{BackgroundActivityContext: stopping})
			stop(worker.ErrWorkerShutdown)
			_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, string(activities.WorkerStopping), app.Type())
		})
	}
}

func TestASecretCutInTwoByALimitIsStillMasked(t *testing.T) {
	v, err := newEnvironment(echo{}).ExecuteActivity("echo.say.plan", forwardOfThisRun(withSecret))
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
			_, err := newEnvironment(echo{fail: c.fail}).ExecuteActivity("echo.say.undo",
				activities.Backward{Entry: forwardOfThisRun(`{}`).Entry})
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
		_, err := newEnvironment(echo{}).ExecuteActivity("echo.say", forwardOfThisRun(with))
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
		{&activities.Error{Type: activities.ActionFailed, Message: "busy", NextRetry: time.Minute}, activities.ActionFailed,
			false, time.Minute},
	} {
		_, err := newEnvironment(echo{fail: c.err}).ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
		app := applicationError(t, err)
		require.Equal(t, string(c.typ), app.Type())
		require.Equal(t, c.final, app.NonRetryable())
		require.Equal(t, c.delay, app.NextRetryDelay())
		require.NoError(t, errors.Unwrap(app), "a cause would carry what is not masked")
	}
}

func TestAForwardOfAnotherRunIsRefusedAnUndoIsNot(t *testing.T) {
	f := forwardOfThisRun(`{}`)
	f.OriginalRunID = "the run that this one was reset from"
	for _, activity := range []string{"echo.say", "echo.say.plan"} {
		_, err := newEnvironment(echo{}).ExecuteActivity(activity, f)
		require.Equal(t, string(activities.ResetRun), applicationError(t, err).Type())
	}
	_, err := newEnvironment(echo{}).ExecuteActivity("echo.say.undo", activities.Backward{Entry: f.Entry})
	require.NoError(t, err)
}

func TestAResetIsReportedBeforeAnyOtherError(t *testing.T) {
	f := forwardOfThisRun(`{"word": "${{ secrets.GONE }}"}`)
	f.OriginalRunID = "the run that this one was reset from"
	for _, activity := range []string{"echo.say", "echo.say.plan"} {
		_, err := newEnvironment(echo{}).ExecuteActivity(activity, f)
		require.Equal(t, string(activities.ResetRun), applicationError(t, err).Type())
	}
}

func TestAnEntryOfAnotherFormatIsRefused(t *testing.T) {
	for _, version := range []int{0, activities.EntryVersion + 1} {
		e := forwardOfThisRun(`{}`).Entry
		e.Version = version
		_, err := newEnvironment(echo{}).ExecuteActivity("echo.say.undo", activities.Backward{Entry: e})
		require.Equal(t, string(activities.UnknownFormat), applicationError(t, err).Type())
		require.ErrorContains(t, err, "recorded by a version that this one cannot undo")
		require.ErrorContains(t, err, "run a worker of the version that recorded it")
	}
}

// One step has written a secret, and another one, which refers to no secret, shows it.
func TestASecretIsMaskedInACallThatDoesNotReferToIt(t *testing.T) {
	v, err := newEnvironment(echo{}).ExecuteActivity("echo.say",
		forwardOfThisRun(fmt.Sprintf(`{"word": %q}`, "it says "+canary+" here")))
	require.NoError(t, err)
	var r activities.Result
	require.NoError(t, v.Get(&r))
	require.NotContains(t, fmt.Sprint(r), canary)
	require.Contains(t, fmt.Sprint(r), activities.Mask)
}
