package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func TestAPassStaysUntilItIsForgottenOrOutOfUse(t *testing.T) {
	now := time.Now()
	p := passesOf(Config{State: t.TempDir()})
	p.now = func() time.Time { return now }
	find := func(token string) bool {
		_, isThere, err := p.Find(token)
		require.NoError(t, err)
		return isThere
	}
	require.NoError(t, p.prune(), "there is no folder yet")
	require.NoError(t, p.Forget("a"))
	require.False(t, find("a"))
	pass := activities.Pass{Change: "sha256:a", Ruling: &activities.Ruling{Verdict: activities.Allows}}
	for _, token := range []string{"a", "b", "c"} {
		require.NoError(t, p.Keep(token, pass))
	}
	got, isThere, err := p.Find("a")
	require.NoError(t, err)
	require.True(t, isThere)
	require.Equal(t, pass, got)
	require.NoError(t, p.Forget("c"))
	require.False(t, find("c"))

	now = now.Add(passWindow - time.Minute)
	require.True(t, find("a"), "an attempt asks for it")
	now = now.Add(2 * time.Minute)
	require.NoError(t, p.prune())
	require.True(t, find("a"))
	require.False(t, find("b"), "nobody has asked for it")

	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "a"), []byte("{"), 0o600))
	_, _, err = p.Find("a")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "it is no pass, and no reason to judge anew")
	_, _, err = p.Find("../a")
	require.Equal(t, activities.Refused, activities.TypeOf(err))
	require.Equal(t, activities.Refused, activities.TypeOf(p.Keep("../a", pass)))
}
