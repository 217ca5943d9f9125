package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// TestADiffTooLongForAGateIsAskedOrRefused: asked, it says what is missing; refused, the task ends
// and nothing is written.
func TestADiffTooLongForAGateIsAskedOrRefused(t *testing.T) {
	content := strings.Repeat(strings.Repeat("x", 79)+"\n", 600)
	for _, policy := range []string{"ask", "refuse"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			path := filepath.Join(root, "long")
			s := serve(t, host.Config{Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}}, CutDiffs: policy},
				host.Options{})
			run := s.start(map[string]any{"name": "long", "steps": []any{map[string]any{
				"id": "long", "uses": "file.write", "gate": "auto", "with": map[string]any{"path": path, "content": content},
			}}})
			if policy == "refuse" {
				_, err := s.end(run)
				require.ErrorContains(t, err, "is longer than the 32768 that a person is shown")
				require.ErrorContains(t, err, "split the step")
				require.NoFileExists(t, path)
				return
			}
			var gates []protocol.GateView
			require.Eventually(t, func() bool { gates = s.stateOf(run.GetID()).Gates; return len(gates) == 1 }, waitFor, tick)
			require.Regexp(t, `\n\.\.\. not shown: \d+ more lines, \d+ of \d+ bytes\n$`, gates[0].Change.Diff)
			require.Contains(t, gates[0].Change.Facts[0], "is cut, so nobody can read all of it here")
			require.NoFileExists(t, path)
			require.NoError(t, s.Client.SignalWorkflow(t.Context(), run.GetID(), "", protocol.SignalApprove,
				protocol.Decision{Step: "long", Digest: gates[0].Digest, Who: "ann"}))
			report, err := s.end(run)
			require.NoError(t, err)
			require.Equal(t, compensations.Committed, report.Status)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(got))
		})
	}
}
