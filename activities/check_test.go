package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// scene is one where each file, and each command's output, is this text.
type scene string

func (s scene) Target() string                                   { return "/target" }
func (s scene) ReadFile(context.Context, string) ([]byte, error) { return []byte(s), nil }
func (s scene) Run(context.Context, []string) ([]byte, error)    { return []byte(s), errors.New("no") }

func TestASecretCutInTwoByACheckIsStillMasked(t *testing.T) {
	masker := &activities.Masker{}
	masker.Add("correct-horse-battery-staple")
	ctx := activities.WithCheckCommands(activities.WithMasker(t.Context(), masker), []string{"*"})
	for name, c := range map[string]struct {
		check activities.Check
		scene scene
	}{
		"command": {activities.Check{Command: &activities.CommandCheck{Run: []string{"lint"}}},
			scene("correct-horse-battery-staple" + strings.Repeat("x", 1990))},
		"json": {activities.Check{JSON: &activities.JSONCheck{Equals: []byte(`1`)}},
			scene(`"correct-horse-battery-staple` + strings.Repeat("x", 190) + `"`)},
	} {
		t.Run(name, func(t *testing.T) {
			err := activities.RunChecks(ctx, []activities.Check{c.check}, activities.Live, activities.Live, c.scene)
			var failed *activities.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, activities.CheckFailed, failed.Type)
			require.Contains(t, failed.Message+failed.Output, "xxx")
			require.NotContains(t, failed.Message+failed.Output, "staple")
		})
	}
}

// answers is a scene whose files hold one text after the other, each for one look.
type answers struct {
	scene
	texts []string
	looks int
}

func (a *answers) ReadFile(context.Context, string) ([]byte, error) {
	a.looks++
	return []byte(a.texts[min(a.looks, len(a.texts))-1]), nil
}

func TestALiveCheckIsTriedUntilItHolds(t *testing.T) {
	for name, c := range map[string]struct {
		texts  []string
		within time.Duration
		looks  int
		took   time.Duration
		want   string
		kind   activities.ErrorType
	}{
		"at once":      {texts: []string{`1`}, within: time.Minute, looks: 1},
		"at the third": {texts: []string{`3`, `2`, `1`}, within: time.Minute, looks: 3, took: 300 * time.Millisecond},
		"without a limit": {texts: []string{`3`, `1`}, looks: 1,
			want: "check 1 (json, live): /target: the document is 3, want 1", kind: activities.CheckFailed},
		"never": {
			texts: []string{`4`, `3`, `2`}, within: time.Second, looks: 4, took: time.Second, kind: activities.CheckFailed,
			want: "check 1 (json, live): it did not hold within 1s (4 tries); at last: /target: the document is 2, want 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &answers{texts: c.texts}
				began := time.Now()
				err := activities.RunChecks(t.Context(), []activities.Check{{
					When: activities.Live, Within: c.within, JSON: &activities.JSONCheck{Equals: []byte(`1`)},
				}}, activities.Live, activities.Live, s)
				require.Equal(t, c.looks, s.looks)
				require.Equal(t, c.took, time.Since(began))
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.want)
				require.Equal(t, c.kind, activities.TypeOf(err))
			})
		})
	}
}

// hanging is a scene that answers nothing.
type hanging struct{ scene }

func (hanging) Run(ctx context.Context, _ []string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestALiveCheckThatNeverAnswersFailsAndACancellationEndsIt(t *testing.T) {
	checks := []activities.Check{{When: activities.Live, Within: time.Minute,
		Command: &activities.CommandCheck{Run: []string{"curl"}}}}
	synctest.Test(t, func(t *testing.T) {
		ctx := activities.WithCheckCommands(t.Context(), []string{"*"})
		err := activities.RunChecks(ctx, checks, activities.Live, activities.Live, hanging{})
		require.ErrorContains(t, err, "it did not answer within 1m0s")
		require.Equal(t, activities.CheckFailed, activities.TypeOf(err))
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, activities.RunChecks(ctx, checks, activities.Live, activities.Live, hanging{}),
			context.DeadlineExceeded)
	})
}
