package wait_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/wait"
)

func step(with string) activities.Step { return activities.Step{ID: "soak", With: []byte(with)} }

func apply(t *testing.T, with string, since time.Duration) (activities.Result, error) {
	a := wait.New().Actions[0]
	s := step(with)
	e := activities.Entry{Since: time.Now().Add(-since)}
	c, err := a.Plan(context.Background(), e, s)
	require.NoError(t, err)
	return a.Apply(context.Background(), e, s, c.Digest)
}

func TestItIsTooEarlyUntilTheTimeHasPassed(t *testing.T) {
	_, err := apply(t, `{"for": "1h30m"}`, 30*time.Minute)
	early, ok := errors.AsType[*activities.Error](err)
	require.True(t, ok)
	require.Equal(t, activities.NotYet, early.Type)
	require.InDelta(t, time.Hour, early.NextRetry, float64(time.Minute))

	r, err := apply(t, `{"for": "1h30m"}`, 91*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "waited for 1h30m", r.Summary)
}

func TestWithoutATimeItIsDoneAtOnce(t *testing.T) {
	r, err := apply(t, `{}`, 0)
	require.NoError(t, err)
	require.Equal(t, "went on", r.Summary)
}

func TestAnotherWaitThanTheApprovedOneIsRefused(t *testing.T) {
	_, err := wait.New().Actions[0].Apply(context.Background(), activities.Entry{}, step(`{"for": "1s"}`),
		activities.DigestOf([]byte(`{"for": "2s"}`)))
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err))
}

func TestATimeOutOfBoundsIsRefusedBeforeTheTaskBegins(t *testing.T) {
	look := wait.New().Actions[0].(activities.Preflighter)
	for _, wrong := range []string{"0s", "-1s", "31d", "soon", "1.5h"} {
		err := look.Preflight(context.Background(), activities.Outlook{Step: step(`{"for": "` + wrong + `"}`)})
		require.ErrorContains(t, err, `Refused: for: "`+wrong+`" must be a time longer than zero and at most 30d`)
	}
	require.NoError(t, look.Preflight(context.Background(), activities.Outlook{Step: step(`{"for": "30d"}`)}))
}
