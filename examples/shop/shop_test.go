package shop

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

func TestMain(m *testing.M) {
	Attend()
	os.Exit(m.Run())
}

// idle is an operator that does nothing, and says that it has done it.
type idle struct{}

func (idle) Checkpoint(context.Context, string) (c environment.Checkpoint, err error) { return c, nil }

func (idle) RollBack(context.Context, string) (r environment.RolledBack, err error) { return r, nil }

func (idle) Compare(context.Context, string, string) error { return nil }

func TestARollbackThatPutsNothingBackIsFound(t *testing.T) {
	if err := Missing(); err != nil {
		testrun.Skipf(t, "the story is not tested: %v", err)
	}
	s, err := Set(t.Context(), io.Discard)
	require.NoError(t, err)
	err = s.Play(t.Context(), idle{}, io.Discard)
	require.ErrorContains(t, err, "the shop is not as at the checkpoint:")
	for _, change := range []string{"~ code/app.json: sha256", "+ code/migrations/002-price.sql", "~ git: branches", "- row plan(legacy,900)",
		"~ table plan: columns name text NO, cents integer NO -> name text NO, price integer NO", "+ uploads/notes.txt"} {
		require.ErrorContains(t, err, change)
	}
	folder := s.Folder
	require.NoError(t, s.Close())
	require.NoDirExists(t, folder)
}

func TestAShopThatIsDownWhileNothingStopsItIsFound(t *testing.T) {
	p := &prober{times: []spell{{doing: "a rollback", down: time.Second}, {doing: "a look", calm: true, broken: time.Second}}}
	require.NoError(t, teller{Stage: &Stage{}, out: io.Discard, prober: p}.tellTimes())
	p.times[1].down = 20 * time.Millisecond
	require.EqualError(t, teller{Stage: &Stage{}, out: io.Discard, prober: p}.tellTimes(),
		"the shop did not answer for 20ms, while nothing had it stopped: a look")
}

// TestTheShopEndsWithTheDemo lets go of the lock that a demo holds until it ends, however it ends.
func TestTheShopEndsWithTheDemo(t *testing.T) {
	a := installed{t.TempDir()}
	_, err := a.put(beforeChapter)
	require.NoError(t, err)
	address, err := freeAddress()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.path(addressFile), []byte(address), 0o600))
	require.NoError(t, os.WriteFile(a.path(dsnFile), nil, 0o600))
	program, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, a.path(programName)))
	demo, err := filelock.Try(a.path(demoFile))
	require.NoError(t, err)
	require.NoError(t, a.start(t.Context()))
	require.NoError(t, a.start(t.Context()), "it runs already")
	_, err = filelock.Try(a.path(runsFile))
	require.ErrorIs(t, err, filelock.ErrHeld)
	demo.Release()
	limited, cancel := context.WithTimeout(t.Context(), switchLimit)
	defer cancel()
	ended, err := filelock.Acquire(limited, a.path(runsFile))
	require.NoError(t, err, "it goes on without the demo")
	ended.Release()
	require.NoError(t, a.stop(t.Context()), "it is stopped already")

	require.NoError(t, os.Remove(a.path("code/app.json")))
	require.ErrorContains(t, a.start(t.Context()), "app.json: no such file or directory")
	require.ErrorContains(t, a.do("jump"), `there is no command "jump"`)
}
