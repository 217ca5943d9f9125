package host

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// TestOnlyATaskThatHasNotEndedIsFinalForARollbackUnderWay: what does not answer now may answer later.
func TestOnlyATaskThatHasNotEndedIsFinalForARollbackUnderWay(t *testing.T) {
	for why, want := range map[string]activities.ErrorType{
		environment.Open: activities.Unsuccessful,
		environment.Busy: activities.ActionFailed, environment.Failed: activities.ActionFailed,
		environment.Bad: activities.Refused,
	} {
		err := explainPast("shop", temporal.NewApplicationError("so it is", why))
		require.Equal(t, want, activities.TypeOf(err), why)
		require.ErrorContains(t, err, "so it is", why)
	}
}

// TestAPlanIsNotMadeOfWhatASilentHostWouldAddTo: a later try tells all of it.
func TestAPlanIsNotMadeOfWhatASilentHostWouldAddTo(t *testing.T) {
	to := environment.Checkpoint{ID: "cp-one", Parts: []environment.KeptPart{{Name: "db"}}}
	require.NoError(t, unheard(environment.Tasks{Unread: []string{"one record"}, Blind: []string{"files"}}, to))
	for _, all := range []environment.Tasks{
		{Silent: []string{"far"}, Unread: []string{"host far does not answer"}},
		{Blind: []string{"db"}, Unread: []string{"host far does not answer"}},
	} {
		err := unheard(all, to)
		require.Equal(t, activities.ActionFailed, activities.TypeOf(err))
		require.ErrorContains(t, err, "host far does not answer")
	}
}
