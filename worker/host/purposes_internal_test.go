package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestAPurposeIsRememberedForItsWindowAndUntilItIsWithdrawn(t *testing.T) {
	now := time.Now()
	p := purposes{notes[noted]{filepath.Join(t.TempDir(), "[state]"), 24 * time.Hour, func() time.Time { return now }, "it"}}
	pay, other := activities.DigestOf([]byte("pay")), activities.DigestOf([]byte("other"))
	begin := func(purpose activities.Digest, task, token string) string {
		earlier, _, err := p.Begin(purpose, activities.Deed{Task: task, Step: "s", Token: token})
		require.NoError(t, err)
		if earlier == nil {
			return ""
		}
		require.WithinDuration(t, now, earlier.At, p.window)
		return earlier.Task
	}
	require.NoError(t, p.Withdraw("a"), "there is none")
	require.Empty(t, begin(pay, "one", "a"))
	require.Empty(t, begin(pay, "one", "a2"), "of the same task")
	require.Empty(t, begin(other, "two", "b"), "for something else")
	require.Equal(t, "one", begin(pay, "two", "b2"))
	require.NoError(t, p.Withdraw("b2"))
	require.Equal(t, "one", begin(pay, "two", "b2"), "it was not let act")
	require.NoError(t, p.Let(pay, activities.Deed{Token: "b2"}))
	require.Empty(t, begin(pay, "two", "b2"), "it is not judged again")
	require.NoError(t, p.Withdraw("a"))
	require.NoError(t, p.Withdraw("a2"))
	require.Equal(t, "two", begin(pay, "three", "c"))
	require.NoError(t, p.Withdraw("b2"))
	require.Equal(t, "three", begin(pay, "four", "d"))
	now = now.Add(p.window + time.Minute)
	require.Empty(t, begin(pay, "five", "e"), "the window has closed")
	files, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "what is older is forgotten")

	require.NoError(t, os.WriteFile(filepath.Join(p.dir, files[0].Name()), nil, 0o600))
	_, err = p.Earlier(pay, activities.Deed{Task: "six"})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	_, _, err = p.Begin(pay, activities.Deed{Token: "../x"})
	require.Equal(t, activities.Refused, activities.TypeOf(err))
}
