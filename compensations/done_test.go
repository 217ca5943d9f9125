package compensations_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

func TestDoneEntriesAreCarriedAsRanges(t *testing.T) {
	var entries []activities.Entry
	for i, token := range []string{"a", "b", "c", "d", "e", "f"} {
		entries = append(entries, activities.Entry{Seq: 3*i + 1, Token: token})
	}
	done := map[string]bool{"a": true, "b": true, "d": true, "f": true, "gone": true}
	ranges := compensations.DoneRanges(entries, done)
	require.Equal(t, []compensations.DoneRange{{1, 4}, {10, 10}, {16, 16}}, ranges)

	left := slices.Delete(slices.Clone(entries), 1, 2) // b has since left the ledger
	again := map[string]bool{}
	compensations.AddDone(again, left, ranges)
	require.Equal(t, map[string]bool{"a": true, "d": true, "f": true}, again)
	require.Empty(t, compensations.DoneRanges(entries, nil))
}
