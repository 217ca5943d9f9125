package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func TestTheLeaseOfAContainerThatIsGoneHoldsNobodyUp(t *testing.T) {
	steps, err := journal.Open(t.TempDir())
	require.NoError(t, err)
	l, err := Open(t.TempDir(), steps)
	require.NoError(t, err)
	l.Patience = time.Millisecond
	gone := map[string]bool{}
	l.IsGone = func(_ context.Context, id string) (bool, error) { return gone[id], nil }
	begin := func(step, id string) error {
		e := activities.Entry{Step: step, Token: activities.NewToken("run", step, 1)}
		token, err := steps.Token(e.Token)
		require.NoError(t, err)
		require.NoError(t, token.Make())
		_, _, err = l.Take(t.Context(), "web", id, e)
		return err
	}
	require.NoError(t, begin("one", "first"))
	err = begin("two", "second")
	require.ErrorContains(t, err, "step one of token "+activities.NewToken("run", "one", 1)+" is at work there")
	require.ErrorContains(t, err, "`starter orphans undo "+activities.NewToken("run", "one", 1)+"`")
	gone["second"] = true
	require.Error(t, begin("two", "second"), "its own container is still there")
	gone["first"] = true
	require.NoError(t, begin("two", "third"))
}
