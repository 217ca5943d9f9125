package command

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/seed-62bf7108/unwind/workflows"
)

// oneScreen is how many lines of Markdown the Temporal UI shows of a workflow's details without scrolling.
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
	fmt.Fprintf(&b, "  - {id: last, uses: fake.set, with: {key: z, value: %q}, gate: ask}\n", strings.Repeat("a line\n", 300))
	d := newDesk(t)
	d.ok("run", d.file(b.String()), "--id", t.Name())
	d.until(t.Name(), atGate)

	text := d.details(t.Name())
	require.LessOrEqual(t, strings.Count(text, "\n"), oneScreen, text)
	require.Contains(t, text, "`starter show` and the query `state` have all of it.")
	require.Less(t, strings.Index(text, "```json"), strings.Index(text, "```diff"), "what to copy comes before what is long")
	var decision json.RawMessage = []byte(codeBlock.FindStringSubmatch(text)[1])
	require.NoError(t, d.client.SignalWorkflow(t.Context(), t.Name(), "", workflows.SignalApprove, decision))
	d.ok("watch", t.Name())
}

func TestARollbackLinksToItsTaskAndBack(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(good), "--id", t.Name(), "--watch")
	d.ok("rollback", t.Name(), "--watch")
	id := d.idOf("rollback", t.Name())
	described, err := d.client.DescribeWorkflow(t.Context(), id, "")
	require.NoError(t, err)
	about, err := described.GetStaticDetails()
	require.NoError(t, err)
	require.Contains(t, about, "(/namespaces/default/workflows/"+t.Name()+"/"+d.runID(t.Name())+"/history)")
	all := "(" + workflows.TaskLink("default", t.Name()) + ")"
	require.Contains(t, about, all)
	require.Contains(t, d.details(t.Name()), all, "and back")
	require.Equal(t, 1, strings.Count(d.ok("show", t.Name()), ": "+id+" rolls back "))
}
