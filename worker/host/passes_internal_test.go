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

func TestAHistoryIsWhatATaskWasLetDoAndWhatStands(t *testing.T) {
	folder := t.TempDir()
	p := passesOf(Config{State: folder})
	history := func(p *passes) activities.History {
		h, err := p.History("task-1")
		require.NoError(t, err)
		return h
	}
	require.Equal(t, activities.History{By: map[string]int64{}}, history(p), "there is no folder yet")
	write := activities.Pass{Action: "file.write", Task: "task-1"}
	exec := activities.Pass{Action: "postgres.exec", Task: "task-1", Added: 1, Removed: 20, Changed: 300}
	for token, pass := range map[string]activities.Pass{"a": write, "b": exec, "c": exec, "d": {Action: "file.write", Task: "task-2"}} {
		require.NoError(t, p.Keep(token, pass))
	}
	all := activities.History{Steps: 3, By: map[string]int64{"file.write": 1, "postgres.exec": 2}, Added: 2, Removed: 40, Changed: 600}
	require.Equal(t, all, history(p))
	require.Equal(t, all, history(p), "as it was read before")
	require.Equal(t, all, history(passesOf(Config{State: folder})), "another process knows it too")

	require.NoError(t, p.Forget("b"), "it was undone")
	exec.Removed = 50
	require.NoError(t, p.Keep("c", exec), "it was planned anew")
	require.Equal(t, activities.History{Steps: 2, By: map[string]int64{"file.write": 1, "postgres.exec": 1}, Added: 1, Removed: 50,
		Changed: 300}, history(p))

	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "e"), []byte("{"), 0o600))
	_, err := p.History("task-1")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
}
