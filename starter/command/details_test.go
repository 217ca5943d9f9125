package command

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// oneScreen is how many lines of Markdown the Temporal UI shows of a workflow's details without
// scrolling.
const oneScreen = 50

// details are what the Temporal UI shows of a workflow.
func (d *desk) details(id string) string {
	d.Helper()
	v, err := d.client.QueryWorkflow(d.Context(), id, "", "__temporal_workflow_metadata")
	require.NoError(d, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(d, v.Get(&metadata))
	return metadata.GetCurrentDetails()
}

var codeBlock = regexp.MustCompile("(?s)```json\n(.*?)\n```")

func TestAGateFitsOneScreenOfTheTemporalUIWithTheSignalToCopy(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: long\nsteps:\n")
	for i := range 60 {
		fmt.Fprintf(&b, "  - {id: s%d, uses: fake.set, with: {key: k%d, value: x}}\n", i, i)
	}
	fmt.Fprintf(&b, "  - {id: last, uses: fake.set, with: {key: z, value: %q}, gate: ask}\n",
		strings.Repeat("a line\n", 300))
	d := newDesk(t)
	d.ok("run", d.file(b.String()), "--id", t.Name())
	d.until(t.Name(), atGate)

	text := d.details(t.Name())
	require.LessOrEqual(t, strings.Count(text, "\n"), oneScreen, text)
	require.Contains(t, text, "`starter show` and the query `state` have all of it.")
	require.Less(t, strings.Index(text, "```json"), strings.Index(text, "```diff"),
		"what to copy comes before what is long")
	var decision json.RawMessage = []byte(codeBlock.FindStringSubmatch(text)[1])
	require.NoError(t, d.client.SignalWorkflow(t.Context(), t.Name(), "", protocol.SignalApprove, decision))
	d.ok("watch", t.Name())
}

func TestWhatFollowsATaskLinksToItAndBack(t *testing.T) {
	d := newDesk(t)
	file := d.file(good)
	d.ok("run", file, "--id", t.Name(), "--watch")
	all := "[All about task " + t.Name() + "](" + protocol.TaskLink("default", t.Name()) + ")"
	of := t.Name()
	for _, verb := range []string{"rollback", "redo"} {
		id := strings.Fields(d.ok(verb, of, "--watch"))[0]
		require.Contains(t, d.about(id), "(/namespaces/default/workflows/"+of+"/"+d.runID(of)+"/user-metadata)")
		require.Contains(t, d.about(id), all)
		require.Contains(t, d.details(of), all, "and back")
		of = id
	}
	require.Equal(t, 1, strings.Count(d.ok("show", t.Name()), ": "+d.idOf("rollback", t.Name())+" rolls back "))

	dead := t.Name() + "-dead"
	d.ok("run", d.file(gated), "--id", dead)
	d.until(dead, atGate)
	d.terminate(dead)
	d.ok("recover", dead, "--watch")
	require.Contains(t, d.about(d.idOf("recover", dead)),
		"(/namespaces/default/workflows/"+dead+"/"+d.runID(dead)+"/user-metadata)")
	require.Contains(t, d.details(dead), "("+protocol.TaskLink("default", dead)+")",
		"and back, though it was ended from outside")
}

// about is what the Temporal UI shows of what a workflow was started for.
func (d *desk) about(id string) string {
	d.Helper()
	described, err := d.client.DescribeWorkflow(d.Context(), id, "")
	require.NoError(d, err)
	text, err := described.GetStaticDetails()
	require.NoError(d, err)
	return text
}
