package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestALateAttemptLeavesTheNoteOfTheNext(t *testing.T) {
	d, opening := decisionsOf(Config{State: t.TempDir()}), activities.DigestOf([]byte("park"))
	first := activities.Carrying{Run: "r", Activity: "5", Attempt: 1}
	second := activities.Carrying{Run: "r", Activity: "5", Attempt: 2}
	earlier, err := d.Begin("t", opening, first)
	require.NoError(t, err)
	require.Nil(t, earlier)
	require.NoError(t, d.Replace("t", opening, first, &second))
	over := first
	over.Over = true
	require.NoError(t, d.Replace("t", opening, first, &over))
	require.NoError(t, d.Replace("t", opening, first, nil))
	earlier, err = d.Begin("t", opening, first)
	require.NoError(t, err)
	require.Equal(t, &second, earlier)
	require.NoError(t, d.Replace("t", opening, second, nil))
	require.NoError(t, d.Replace("t", opening, second, &over), "there is none any more")
	earlier, err = d.Begin("t", opening, second)
	require.NoError(t, err)
	require.Nil(t, earlier)
}
