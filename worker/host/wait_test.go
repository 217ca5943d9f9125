package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// inBatches starts a task that writes a file for each of three targets, one after the other.
func inBatches(t *testing.T, pause string) (*stage, client.WorkflowRun, string) {
	root := t.TempDir()
	s := serve(t, host.Config{Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}}}, host.Options{})
	return s, s.start(map[string]any{"name": "release", "steps": []any{map[string]any{
		"id": "g", "for_each": []string{"a", "b", "c"}, "pause": pause, "on_failure": "rollback_target",
		"steps": []any{map[string]any{"id": "s", "uses": "file.write",
			"with": map[string]any{"path": root + "/${{ target }}", "content": "x"}}},
	}}}), root
}

func namesIn(t *testing.T, folder string) (names []string) {
	found, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, f := range found {
		if f.Name() != ".unwind" { // what the world keeps
			names = append(names, f.Name())
		}
	}
	return names
}

func TestAPersonDecidesBeforeEachBatch(t *testing.T) {
	s, run, root := inBatches(t, "gate")
	for _, c := range []struct{ signal, step, why, names string }{
		{protocol.SignalApprove, "g-batch-2", "next: b; 1 target after that", "[a]"},
		{protocol.SignalReject, "g-batch-3", "next: c", "[a b]"},
	} {
		var gate protocol.GateView
		require.Eventually(t, func() bool {
			for _, g := range s.stateOf(run.GetID()).Gates {
				gate = g
			}
			return gate.Step == c.step
		}, waitFor, tick)
		require.Equal(t, c.why, gate.Why)
		require.Equal(t, c.names, fmt.Sprint(namesIn(t, root)))
		require.NoError(t, s.Client.SignalWorkflow(t.Context(), run.GetID(), "", c.signal,
			protocol.Decision{Step: gate.Step, Digest: gate.Digest, Who: "ann"}))
	}
	report := s.report(run.GetID())
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"a", "b"}, namesIn(t, root))
}

// awaitPause waits until the task waits before its second batch.
func (s *stage) awaitPause(id string) {
	require.Eventually(s, func() bool {
		for _, v := range s.stateOf(id).Steps {
			if v.ID == "g-batch-2" && v.Waiting != "" {
				return true
			}
		}
		return false
	}, waitFor, tick)
}

func TestAWaitGoesOnWithoutAWorker(t *testing.T) {
	s, run, root := inBatches(t, "3s")
	s.awaitPause(run.GetID())
	s.worker.Stop()
	config := s.worker.Config
	w, err := host.Start(t.Context(), config, host.Options{Client: s.Client, Namespace: s.Namespace})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	report := s.report(run.GetID())
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"a", "b", "c"}, namesIn(t, root))
	since := s.entries(run.GetID())
	for step, next := range map[string]string{"g-batch-2": "g-b-s", "g-batch-3": "g-c-s"} {
		require.GreaterOrEqual(t, since[next].Since.Sub(since[step].Since), 3*time.Second)
	}
}

func TestACancelEndsAWait(t *testing.T) {
	s, run, root := inBatches(t, "1d")
	s.awaitPause(run.GetID())
	require.Equal(t, []string{"a"}, namesIn(t, root))
	require.NoError(t, s.Client.CancelWorkflow(t.Context(), run.GetID(), ""))
	_, err := s.end(run)
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(root, "a"))
}
