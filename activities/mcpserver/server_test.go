package mcpserver_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
)

// ending is a context that ends as the test says.
type ending struct {
	context.Context //nolint:containedctx // it is one

	why error
}

func (e ending) Err() error {
	if e.Context.Err() == nil {
		return nil
	}
	return e.why
}

// giveUp applies the step, and gives up on a request to the server that has not answered.
func (s step) giveUp(why error) error {
	s.Helper()
	ctx, end := context.WithCancelCause(s.Context())
	failed := make(chan error)
	go func() {
		_, err := s.action.Apply(ending{ctx, why}, s.entry, s.step, "")
		failed <- err
	}()
	s.awaitCall()
	end(why)
	return <-failed
}

// awaitCall waits until the server has a request under the token of the step.
func (s step) awaitCall() {
	s.Helper()
	require.Eventually(s, func() bool { return mcpserver.IsUnsettled(s.world, "notes", s.entry.Token) }, 10*time.Second,
		time.Millisecond)
}

// stopServer starts the server, and makes it neither read nor answer.
func (s *store) stopServer() {
	s.Helper()
	_, err := s.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.NoError(s, err)
	mcpserver.ProcessOf(s.world, "notes").Signal(unix.SIGSTOP)
}

func TestASilentServerIsReplaced(t *testing.T) {
	s := newStore(t)
	s.stopServer()
	stopped := mcpserver.ProcessOf(s.world, "notes")
	read := s.step("mcp.read", "get_note", params{"id": "there"})
	require.ErrorIs(t, read.giveUp(context.DeadlineExceeded), context.DeadlineExceeded)
	_, err := read.apply()
	require.NoError(t, err)
	require.False(t, stopped.IsAlive())
}

func TestAServerThatReadsNothingBlocksNobody(t *testing.T) {
	s := newStore(t)
	s.stopServer()
	create := s.step("mcp.call", "create_blind",
		params{"title": "plan", "body": strings.Repeat("more than a pipe holds ", 10_000)})
	err := create.giveUp(context.DeadlineExceeded)
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err, "create_blind: no answer: context deadline exceeded")
	_, err = s.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.NoError(t, err)
}

// The server is stuck at the look of an undo that was stopped. The next undo does not wait for it
// too.
func TestALookWithoutAnAnswerIsUnsettled(t *testing.T) {
	s := newStore(t)
	before := s.manifest()
	put := s.step("mcp.call", "put_note", params{"id": "there", "body": "new"})
	_, err := put.apply()
	require.NoError(t, err)
	s.stopServer()
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := put.action.Undo(ctx, put.entry, activities.Decision{})
		failed <- err
	}()
	put.awaitCall()
	stop()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Equal(t, activities.Restored, put.undo().Outcome)
	require.Equal(t, before, s.manifest())
}

func TestAServerThatStartsHoldsUpNoOther(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	s := newStoreWith(t, func(c *mcpserver.Config) {
		c.Servers["slow"] = mcpserver.Server{Command: "echo > " + started + "; exec sleep 600"}
	})
	slow := s.stepOf("slow", "mcp.read", "get_note", params{})
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := slow.action.Apply(ctx, slow.entry, slow.step, "")
		failed <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, time.Minute, time.Millisecond)
	_, err := s.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.NoError(t, err)
	waiting, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = slow.action.Apply(waiting, slow.entry, slow.step, "")
	require.ErrorIs(t, err, context.DeadlineExceeded,
		"who needs the same server waits for its start, as long as there is time")
	leave()
	require.ErrorIs(t, <-failed, context.Canceled)
}

func TestTheCommandLineIsNotInAnError(t *testing.T) {
	s := newStoreWith(t, func(c *mcpserver.Config) {
		c.Servers["broken"] = mcpserver.Server{Command: "exit 3 # --key battery-staple"}
	})
	_, err := s.stepOf("broken", "mcp.read", "get_note", params{}).apply()
	require.ErrorContains(t, err, "server broken: initialize: the server has ended")
	require.NotContains(t, err.Error(), "battery-staple")
}

func TestAWorkerThatStopsEndsItsServersAndStartsNone(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	c, err := configOf(dir)
	require.NoError(t, err)
	started := filepath.Join(dir, "started")
	c.Servers["late"] = mcpserver.Server{Command: "echo > " + started}
	w, err := mcpserver.New(c)
	require.NoError(t, err)
	s := &store{T: t, dir: dir, world: w}
	_, err = s.step("mcp.read", "get_note", params{"id": "there"}).apply()
	require.NoError(t, err)
	running := mcpserver.ProcessOf(w, "notes")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	w.Watch(ctx)
	require.False(t, running.IsAlive())
	for _, server := range []string{"notes", "late"} {
		_, err = s.stepOf(server, "mcp.read", "get_note", params{"id": "there"}).apply()
		require.Equal(t, activities.WorkerStopping, activities.TypeOf(err), "%v", err)
	}
	require.NoFileExists(t, started)
}
