package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// second is a worker on another host, which has a folder of its own.
type second struct {
	*site
	state, root string
	worker      *host.Worker
}

func (s *second) start() {
	config := host.Config{Host: "there", State: s.state, Queue: s.queue, Schedules: "off", StopTimeout: 100 * time.Millisecond}
	var err error
	s.worker, err = host.Start(s.Context(), config.With(&folder.Settings{Roots: []string{filepath.Dir(s.root)}}),
		host.Options{Client: s.client, Namespace: s.server.Namespace})
	require.NoError(s, err)
}

// newTwoHosts is an environment whose copies are on another host than all else.
func newTwoHosts(t *testing.T) *second {
	s := &second{site: newSite(t), state: t.TempDir(), root: filepath.Join(t.TempDir(), "copies")}
	require.NoError(t, os.Mkdir(s.root, 0o700))
	s.start()
	t.Cleanup(func() { s.worker.Stop() })
	s.writeThere("one", "first")
	s.write("environment.yaml", `
name: `+s.name+`
on: here
unit: app
healthy: 100ms
parts:
  uploads: {folder: `+s.site.root+`/uploads}
  copies: {folder: `+s.root+`, on: there}
`)
	s.apply()
	return s
}

func (s *second) writeThere(name, content string) {
	require.NoError(s, os.WriteFile(filepath.Join(s.root, name), []byte(content), 0o600))
}

func (s *second) isThere() (names []string) {
	files, err := os.ReadDir(s.root)
	require.NoError(s, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func TestPartsOnTwoHostsGoBackTogether(t *testing.T) {
	s := newTwoHosts(t)
	before := s.is()
	first := s.checkpoint()
	require.True(t, first.Quiesced)
	require.Equal(t, "there", first.Parts[0].On)
	s.sh("echo second >uploads/two")
	s.writeThere("two", "second")
	broken := s.is()
	back := s.rollBack(first.ID)
	require.Equal(t, before, s.is())
	require.Equal(t, []string{"one"}, s.isThere())
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, s.is())
	require.Equal(t, []string{"one", "two"}, s.isThere())

	for _, c := range s.view().Checkpoints {
		s.ok("env", "delete", s.name, c.ID)
	}
	held, err := filepath.Glob(filepath.Join(s.state, "folder", "journal", "tokens", "*", "hold-1"))
	require.NoError(t, err)
	require.Len(t, held, 3, "what the other host has kept is held there")
	for _, hold := range held {
		require.FileExists(t, filepath.Join(filepath.Dir(hold), "released"), "and let go with the checkpoint")
	}
}

func TestAHostWithoutTheWorldOfAPartIsNamed(t *testing.T) {
	s := newTwoHosts(t)
	s.write("environment.yaml", "name: "+s.name+"\non: here\nparts: {rows: {sqlite: /srv/a.db, on: there}}\n")
	r := s.do("env", "apply", filepath.Join(s.site.root, "environment.yaml"))
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, `@there does not serve world "sqlite"`)
}

// TestAHostThatIsAwayIsWaitedForBeforeAnythingStops: the checkpoint is whole, once the host is back.
func TestAHostThatIsAwayIsWaitedForBeforeAnythingStops(t *testing.T) {
	s := newTwoHosts(t)
	s.worker.Stop()
	done := make(chan environment.Checkpoint)
	go func() {
		defer close(done) // also where the checkpoint fails
		done <- s.checkpoint()
	}()
	require.Eventually(t, func() bool {
		doing := s.view().Doing
		return doing != nil && strings.HasSuffix(doing.What, "it waits for host there")
	}, time.Minute, 20*time.Millisecond)
	require.FileExists(t, filepath.Join(s.site.root, "running"), "the unit goes on")
	s.start()
	require.Len(t, (<-done).Parts, 2)
}
