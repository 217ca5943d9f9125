package activities_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// worldWithoutActions returns a world that has only a journal.
func worldWithoutActions(name string, journal func(context.Context) (string, error)) activities.World {
	return activities.World{Name: name, Journal: journal}
}

func TestAWorldThatDoesNotAnswerDoesNotBlockTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		defer close(ended)
		hangs := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", errors.New("the engine does not answer")
		}
		r := activities.NewRegistry(
			worldWithoutActions("container", hangs), worldWithoutActions("other", hangs),
			worldWithoutActions("deaf", func(context.Context) (string, error) { <-ended; return "too late", nil }),
			worldWithoutActions("broken", func(context.Context) (string, error) { panic("no engine") }),
			worldWithoutActions("file", func(context.Context) (string, error) { return "j", nil }),
		)
		began := time.Now()
		ids, problems := r.Journals(t.Context())
		require.Equal(t, 5*time.Second, time.Since(began), "all are asked at once")
		require.Equal(t, map[string]string{"file": "j"}, ids)
		require.Len(t, problems, 4)
		require.Contains(t, problems["deaf"], "did not answer within 5s")
		require.Contains(t, problems["broken"], "no engine")
	})
}

func TestAnAnswerDoesNotWaitForTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ids, problems := activities.NewRegistry(worldWithoutActions("file",
			func(context.Context) (string, error) { return "j", nil })).Journals(t.Context())
		require.Zero(t, time.Since(began))
		require.Equal(t, map[string]string{"file": "j"}, ids)
		require.Empty(t, problems)
	})
}
