package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
)

// pause has somebody pause a task in Temporal.
func (d *desk) pause(id string) {
	d.Helper()
	_, err := d.client.WorkflowService().PauseWorkflowExecution(d.Context(),
		&workflowservice.PauseWorkflowExecutionRequest{
			Namespace: d.server.Namespace, WorkflowId: id, Identity: "ann", Reason: "lunch", RequestId: id,
		})
	require.NoError(d, err)
}

func (d *desk) unpause(id string) {
	d.Helper()
	_, err := d.client.WorkflowService().UnpauseWorkflowExecution(d.Context(),
		&workflowservice.UnpauseWorkflowExecutionRequest{
			Namespace: d.server.Namespace, WorkflowId: id, Identity: "ann", RequestId: id + "-again",
		})
	require.NoError(d, err)
}

const askedTwice = `
name: set it twice
steps:
  - {id: one, uses: fake.set, with: {key: a, value: first}}
  - {id: two, uses: fake.set, with: {key: a, value: second}, gate: ask}
`

func TestAPausedTaskIsAliveAndTakesNoDecision(t *testing.T) {
	d := newDesk(t)
	id := t.Name()
	require.Equal(t, statusNeedsPerson, d.do("run", d.file(askedTwice), "--id", id, "--watch").status)
	d.pause(id)

	shown := d.ok("show", id)
	require.Contains(t, shown, "forward, paused\n")
	require.Contains(t, shown, "by ann (lunch)")
	require.Contains(t, shown,
		"temporal workflow unpause --address "+d.server.Address+" --namespace default --workflow-id "+id)
	require.Equal(t, "ann", d.shown(id).Paused.Who)
	require.Eventually(t, func() bool {
		return strings.Contains(normal(d.ok("list", "--gate")), "\n"+id+"\n set it twice open, paused gate of two ")
	}, waitFor, tick, "its gate is listed")

	for _, command := range [][]string{
		{"approve", id, "two", "--yes"}, {"reject", id, "two", "--why", "no"},
		{"resolve", id, "two", "--do", "retry", "--why", "no"}, {"cancel", id}, {"recover", id}, {"rollback", id, "--why",
			"no"},
	} {
		r := d.do(command...)
		require.Equal(t, statusUsage, r.status, "%v: %s%s", command, r.out, r.err)
		require.Contains(t, r.err, "paused since ", command)
		require.Contains(t, r.err, "temporal workflow unpause ", command)
	}

	d.unpause(id)
	d.ok("approve", id, "two", "--yes")
	d.ok("watch", id)
	require.Equal(t, "second", d.world.get("a"))
}

func TestAPausedTaskCanBeTakenOver(t *testing.T) {
	d := newDesk(t)
	id := t.Name()
	require.Equal(t, statusNeedsPerson, d.do("run", d.file(askedTwice), "--id", id, "--watch").status)
	d.pause(id)
	d.ok("recover", id, "--take-over", "--watch")
	require.Empty(t, d.world.get("a"), "what it did is undone")
}
