package volumes_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// hold is a lease on a file: whoever opens it waits until it is released.
type hold struct {
	*testing.T
	f *os.File
}

func newHold(t *testing.T, name string) hold {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	h := hold{t, f}
	h.set(unix.F_WRLCK)
	return h
}

// set waits while a process that another test has just begun still has the file open, as a copy of
// this one.
func (h hold) set(kind int) {
	h.Helper()
	require.EventuallyWithT(h, func(c *assert.CollectT) {
		_, err := unix.FcntlInt(h.f.Fd(), unix.F_SETLEASE, kind)
		assert.NoError(c, err)
	}, time.Minute, time.Millisecond)
}

func (h hold) release() { h.set(unix.F_UNLCK) }

// waitedFor says that somebody is opening the file.
func (h hold) waitedFor() bool {
	kind, err := unix.FcntlInt(h.f.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind != unix.F_WRLCK
}

// call begins an activity of the container's world, as a worker runs it. Told receives what its
// heartbeats say.
func (s *scene) call(name string, argument any) (told <-chan string, ended <-chan error) {
	lines, end := make(chan string, 1000), make(chan error, 1)
	env := new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var p activities.Progress
		if details.HasValues() && details.Get(&p) == nil {
			lines <- strings.Join(p.Lines, "\n")
		}
	})
	activities.NewRegistry(s.world).Register(env, activities.Host{})
	go func() {
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				StartToCloseTimeout: time.Minute, HeartbeatTimeout: 3 * time.Second,
				RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
			})
			return workflow.ExecuteActivity(ctx, name, argument).Get(ctx, nil)
		})
		end <- env.GetWorkflowError()
	}()
	return lines, end
}

// await returns when a line has been told.
func (s *scene) await(told <-chan string, line string) {
	s.Helper()
	patience := time.After(time.Minute)
	for {
		select {
		case now := <-told:
			if now == line {
				return
			}
		case <-patience:
			require.FailNow(s, "never told: "+line)
		}
	}
}

// TestCopiesTellHowFarTheyHaveCome holds up a copy at the second of two files, and later the undo
// when it reads the copy.
func TestCopiesTellHowFarTheyHaveCome(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	s.box.Run(t, "rm -r /data/a /data/same /data/d")
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.root, name), bytes.Repeat([]byte(name), 3<<20), 0o600))
	}
	before, e := s.holds(), s.entry()

	held := []hold{newHold(t, filepath.Join(s.root, "a")), newHold(t, filepath.Join(s.root, "b"))}
	told, ended := s.call("container.exec", activities.Forward{
		Entry: e, Step: s.step("echo two >/data/a"), OriginalRunID: "default-test-run-id",
	})
	require.Eventually(t, func() bool { return held[0].waitedFor() != held[1].waitedFor() }, time.Minute, time.Millisecond)
	if held[1].waitedFor() {
		held[0], held[1] = held[1], held[0]
	}
	held[0].release()
	s.await(told, "volume "+s.volume+": copying, 1 path (3 MB) so far")
	held[1].release()
	require.NoError(t, <-ended)
	require.NotEmpty(t, before.Changes(s.holds()))

	copied := newHold(t, s.chunk(e, strings.Repeat("a", 256<<10)))
	told, ended = s.call("container.exec.undo", activities.Backward{Entry: e})
	s.await(told, "volume "+s.volume+": checking the copy")
	copied.release()
	require.NoError(t, <-ended)
	require.Empty(t, before.Changes(s.holds()))
}
