package command

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

// A server that takes no updates, as one does whose limits are used up, takes every decision all
// the same, as a signal.
func TestADecisionGetsThroughWhereTheServerTakesNoUpdates(t *testing.T) {
	server, err := devserver.Start(t.Context(),
		devserver.Options{Settings: map[string]any{"frontend.enableUpdateWorkflowExecution": false}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	c, err := client.Dial(server.ClientOptions())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	d := newLoneDeskOn(t, server, c)

	d.ok("run", d.file(gated), "--id", "approved")
	d.until("approved", atGate)
	require.Contains(t, d.ok("approve", "approved", "two", "--yes"), "approved: step two of task approved goes on")
	d.ok("watch", "approved")

	d.ok("run", d.file(gated), "--id", "rejected")
	d.until("rejected", atGate)
	d.world.set("a", "mine") // somebody else's newer work
	require.Contains(t, d.ok("reject", "rejected", "two", "--why", "no"), "rejected: task rejected unwinds")
	d.until("rejected", parked)
	require.Contains(t, d.ok("resolve", "rejected", "one", "--do", "accept", "--yes"), "resolved: accept of step one")
	require.Equal(t, statusFailed, d.do("watch", "rejected").status)
	require.Empty(t, d.state("rejected").Ignored, "each was sent once")
}
