package helper

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// put writes a file into the container's own root, below all layers, as docker cp does.
func (k *kept) put(at, content string) {
	k.t.Helper()
	to := filepath.Join("/proc", strconv.Itoa(k.PID), "root", at)
	require.NoError(k.t, os.WriteFile(to+".new", []byte(content), 0o600))
	require.NoError(k.t, os.Rename(to+".new", to))
}

func TestWhatSomebodyElseWritesBelowTheLayersIsToldAndKept(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("mkdir -p /srv/d /srv/gone; for f in a b d/x gone/z; do echo base >/srv/$f; done")
	k.stages("a", "echo step >/srv/a; rm -r /srv/gone; echo step >/srv/d/x; echo new >/srv/new; echo free >/srv/free")
	own := k.must(Changes, name("a0")).Changes
	k.put("/srv/b", "their b\n")
	assert.Equal(t, own, k.must(Changes, name("a0")).Changes, "what the step has not written is not its business")
	k.put("/srv/a", "their a\n")
	k.put("/srv/new", "their new\n")
	k.put("/srv/gone/z", "their z\n")
	assert.NotEqual(t, own, k.must(Changes, name("a0")).Changes)
	done := k.must(Commit, names("a0", "aend"))
	assert.True(t, done.Yes)
	assert.Equal(t, []string{"/srv/a", "/srv/gone", "/srv/new"}, done.Paths)
	assert.Equal(t, done.Paths, k.must(Commit, names("a0", "aend")).Paths, "whoever asks again is told too")
	assert.False(t, k.must(Stacked).Yes)
	const all = "cat /srv/a /srv/b /srv/d/x /srv/gone/z /srv/new /srv/free"
	assert.Equal(t, "their a\ntheir b\nstep\ntheir z\ntheir new\nfree\n", k.Do(all))
	assert.NotEqual(t, own, k.must(Changes, name("a0")).Changes, "a rollback is told too")
	k.must(Restore, name("a0"), turn("undo"))
	assert.Equal(t, "their a\ntheir b\nbase\ntheir z\n", k.Do("cat /srv/a /srv/b /srv/d/x /srv/gone/z"))
}

func TestARollbackTellsWhatSomebodyElseHasWrittenBelowIt(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("echo base >/srv/a; echo base >/srv/b")
	k.stages("a", "echo 1 >/srv/a", "echo 2 >/srv/a", "echo 3 >/srv/b")
	k.put("/srv/a", "operator\n")
	k.must(Restore, name("a2"), turn("undo"))
	assert.Empty(t, k.must(Changes, name("a2")).Changes)
	for _, checkpoint := range []string{"a1", "a0"} {
		assert.Contains(t, said(k.must(Changes, name(checkpoint)).Changes), "~f/srv/a")
		k.must(Restore, name(checkpoint), turn("undo"))
		assert.Equal(t, "~f/srv/a", said(k.must(Changes, name(checkpoint)).Changes))
	}
	assert.Equal(t, "operator\nbase\n", k.Do("cat /srv/a /srv/b"))
}

func TestWhatACommitOwesIsComparedBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.Do("echo base >/srv/log; echo base >/srv/kept")
	k.must(Take, name("one"))
	said, _ := k.Start(
		"echo 1 >/srv/log; echo 1 >/srv/kept; echo 1 >/srv/gone; echo x; while [ ! -e /dev/shm/go ]; do sleep 0.01; done; " +
			"for f in log kept gone; do echo 2 >/srv/$f; done; echo y; exec sleep 599")
	done := k.must(Commit, name("one"))
	assert.False(t, done.Yes)
	require.NotEmpty(t, done.Users)
	assert.Contains(t, done.Users[0], "echo 1 >/srv/log")
	k.Do("touch /dev/shm/go")
	require.Equal(t, "y", said())
	assert.Equal(t, []string{"sleep 599"}, k.must(Commit, name("one")).Users)
	k.Do("echo 3 >/srv/more")
	k.restart()
	k.Do("echo operator >/srv/log; rm /srv/gone") // while no helper runs
	k.must(Stacked)
	assert.Equal(t, "operator\n2\n3\n", k.Do("cat /srv/log /srv/kept /srv/more; test ! -e /srv/gone"))
	assert.Equal(t, []string{"/srv/gone", "/srv/log"}, k.must(Commit, name("one")).Paths)
}
