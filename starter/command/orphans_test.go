package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAnOrphanIsShownAndUndone(t *testing.T) {
	root := t.TempDir()
	d := newDesk(t)
	d.stopWorker()
	d.startWorker(func(c *host.Config) { *c = c.With(&file.Settings{Roots: []string{root}}) })
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	for _, path := range []string{one, two} {
		require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
	}
	d.ok("run", d.file(`name: write
steps:
  - {id: one, uses: file.write, with: {path: `+one+`, content: written}}
  - {id: two, uses: file.write, with: {path: `+two+`, content: written}}
`), "--id", t.Name(), "--watch")

	starter := func(args ...string) typed { // as it is shipped: it knows no world
		t.Helper()
		return do(t.Context(), Options{queue: d.queue}, append([]string{"orphans"}, args...)...)
	}
	list := func() (found []protocol.RecordName) {
		r := starter("list", "-o", "json")
		require.Equal(t, statusOK, r.status, r.err)
		require.NoError(t, json.Unmarshal([]byte(r.out), &found))
		return found
	}
	records, _, err := d.worker.Registry.Records()["file"].Records(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 2)
	token := map[string]string{}
	for _, r := range records {
		token[r.Entry.Step] = r.Entry.Token
	}
	require.Empty(t, list())
	known := starter("undo", token["one"], "--yes")
	require.Equal(t, statusUsage, known.status, "%+v", known)
	require.Contains(t, known.err, "is no orphan: the server knows its task "+t.Name())

	_, err = d.client.WorkflowService().DeleteWorkflowExecution(t.Context(),
		&workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: d.server.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: t.Name()},
		})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(list()) == 2 }, waitFor, tick)

	unasked := starter("undo", token["one"])
	require.Equal(t, statusUsage, unasked.status)
	require.Contains(t, unasked.out, "step one of "+t.Name()+": file.write, begun ")
	require.Contains(t, unasked.out, "seen  as-left")
	require.Contains(t, unasked.err, "nothing was touched; give --yes")
	requireContent(t, one, "written")

	restored := starter("undo", token["one"], "--yes", "--why", "its history is gone")
	require.Equal(t, statusOK, restored.status, restored.err)
	require.Contains(t, restored.out, "restored: ")
	requireContent(t, one, "before")
	again := starter("undo", token["one"], "--yes")
	require.Equal(t, statusUsage, again.status)
	require.Contains(t, again.err, "nothing waits to be undone")

	require.NoError(t, os.WriteFile(two, []byte("theirs"), 0o600))
	drifted := starter("undo", token["two"], "--yes")
	require.Equal(t, statusNeedsPerson, drifted.status)
	require.Contains(t, drifted.out, "drifted: ")
	requireContent(t, two, "theirs")
	_, digest, named := strings.Cut(strings.TrimSpace(drifted.err), "add --force ")
	require.True(t, named, drifted.err)
	require.Equal(t, statusNeedsPerson, starter("undo", token["two"], "--yes", "--force", "sha256:00").status)
	requireContent(t, two, "theirs")
	state := d.worker.Config.State
	serve := func(with func(*host.Config)) {
		d.stopWorker()
		d.startWorker(func(c *host.Config) {
			*c = c.With(&file.Settings{Roots: []string{root}})
			c.State = state
		}, with)
	}
	serve(newSigners(t, "ann").with)
	unsigned := starter("undo", token["two"], "--yes", "--force", digest)
	require.NotEqual(t, statusOK, unsigned.status)
	require.Contains(t, unsigned.err, "put back by hand what was changed since, then undo it without --force")
	requireContent(t, two, "theirs")
	serve(func(*host.Config) {})
	forced := starter("undo", token["two"], "--yes", "--force", digest)
	require.Equal(t, statusOK, forced.status, forced.err)
	requireContent(t, two, "before")

	require.Empty(t, list())
	none := starter("undo", strings.Repeat("0", 32), "--yes")
	require.Equal(t, statusUsage, none.status)
	require.Contains(t, none.err, "no journal of host here has a record of token")
}

func requireContent(t *testing.T, path, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(content))
}
