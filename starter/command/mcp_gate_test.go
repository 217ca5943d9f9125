package command

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func idIn(handle string) string { id, _, _ := strings.Cut(handle, "@"); return id }

// gated is a step that waits for a person.
func gatedIn(session string) arguments {
	return arguments{"session": session, "request": "gated", "gate": "ask", "with": set("a", "x")}
}

func TestAGateThatIsAnsweredSoonComesBackInTheSameCall(t *testing.T) {
	d := newDesk(t)
	var progress atomic.Value
	a := d.newAgent(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
		r *sdk.ProgressNotificationClientRequest) {
		progress.Store(r.Params.Message)
	}})
	s := a.open()
	ended := make(chan *sdk.CallToolResult, 1)
	go func() {
		call := &sdk.CallToolParams{Name: "fake_set", Arguments: gatedIn(s)}
		call.SetProgressToken("p")
		r, err := a.CallTool(t.Context(), call)
		if err != nil {
			r = &sdk.CallToolResult{IsError: true}
		}
		ended <- r
	}()
	d.until(idIn(s), atGate)
	require.Eventually(t, func() bool { return progress.Load() == "step s1 waits for a person's approval" }, waitFor, tick)
	d.ok("approve", idIn(s), "s1", "--yes")
	r := <-ended
	require.False(t, r.IsError)
	require.Equal(t, "done", outcomeIn(t, r).Steps[0].State)
	require.Equal(t, "x", d.world.get("a"))
}

func TestAGateThatTakesHoursIsPolled(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--wait", "100ms")
	s := a.open()
	for range 12 { // more than the server lets wait at a time
		waits := a.does("fake_set", gatedIn(s))
		require.True(t, waits.Pending)
		require.Equal(t, "-\n+x\n", waits.Steps[0].Gate.Change.Diff)
		require.Contains(t, waits.Next, `request "gated"`)
	}
	require.Equal(t, "at-gate", a.does("status", arguments{"session": s}).Steps[0].State)
	diff := a.does("diff", arguments{"session": s})
	require.Empty(t, diff.Steps, "nothing has been done")
	d.ok("approve", idIn(s), "s1", "--yes")
	done := d.newAgent(nil).does("status", arguments{"session": s, "request": "gated"})
	require.False(t, done.Pending)
	require.Equal(t, "done", done.Steps[0].State)
	require.Equal(t, "-\n+x\n", a.does("diff", arguments{"session": s}).Steps[0].Plan.Diff)
	unknown := a.isRefused("status", arguments{"session": s, "request": "never made"})
	require.Contains(t, unknown.Text, "never made")
}

func TestAStepThatFailedIsCorrectedByAPerson(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--wait", "100ms")
	s := a.open()
	failing := arguments{"session": s, "request": "r", "on_failure": "ask",
		"with": map[string]any{"key": "a", "value": "x", "fail": true}}
	waits := a.does("fake_set", failing)
	require.True(t, waits.Pending)
	require.Contains(t, waits.Next, `request "r"`)
	require.Equal(t, "parked", waits.Steps[0].State)
	park := waits.Steps[0].Park
	require.Equal(t, []any{1, []string{"retry", "skip", "unwind"}}, []any{park.Try, park.Ways})
	require.Contains(t, park.Reason, "does not work")
	require.JSONEq(t, `{"key": "a", "value": "x", "fail": true}`, string(park.With))
	require.Empty(t, d.world.get("a"), "it is undone first")
	require.Equal(t, park, a.does("status", arguments{"session": s}).Steps[0].Park)

	d.ok("resolve", idIn(s), "s1", "--do", "retry", "--with", "fail=false", "--yes")
	require.Equal(t, "done", a.does("fake_set", failing).Steps[0].State, "the request repeated tells what became of it")
	require.Equal(t, "x", d.world.get("a"))
	require.Equal(t, "committed", a.does("finish", arguments{"session": s}).Report.Status)
}

func TestTheUserOfAClientDecides(t *testing.T) {
	for name, revision := range map[string]string{"now": "", "before": "2025-06-18"} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			said := &sdk.ElicitResult{Action: "accept", Content: map[string]any{"why": "it is fine"}}
			var shown string
			a := d.newAgentOf(revision,
				&sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					shown = r.Params.Message
					return said, nil
				}}, "--elicit", "--wait", "30s")
			s := a.open()
			in := gatedIn(s)
			delete(in, "request") // the question carries the one that was made
			done := a.does("fake_set", in)
			require.Equal(t, "done", done.Steps[0].State)
			require.Equal(t, []string{"approved by the user of test: it is fine"}, done.Steps[0].Notes)
			require.Contains(t, shown, "Approve step s1 (fake.set)?")
			require.Contains(t, shown, "-\n+x\n")
			require.Equal(t, "x", d.world.get("a"))

			said = &sdk.ElicitResult{Action: "decline"}
			in["with"] = set("a", "y")
			no, isError := a.call("fake_set", in)
			require.True(t, isError)
			require.Equal(t, "rolled-back", no.Steps[0].State)
			require.Equal(t, "step s2 was rejected by the user of test", no.Steps[0].Error)
			require.Equal(t, "x", d.world.get("a"))

			said = &sdk.ElicitResult{Action: "cancel"}
			b := d.newAgentOf(revision,
				&sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					return said, nil
				}}, "--elicit", "--wait", "100ms")
			waits := b.does("fake_set", in)
			require.True(t, waits.Pending, "who decides nothing leaves it to others")
			require.Equal(t, "-x\n+y\n", waits.Steps[0].Gate.Change.Diff)
			d.ok("reject", idIn(s), "s3", "--why", "nobody wants it")
			d.until(idIn(s), func(s protocol.State) bool { return s.Steps[2].State == protocol.RolledBack })
		})
	}
}

func TestNoUserIsAskedWhereOnlySignedDecisionsCount(t *testing.T) {
	d, s := newSigned(t)
	asked := atomic.Bool{}
	a := d.newAgent(&sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult,
		error) {
		asked.Store(true)
		return &sdk.ElicitResult{Action: "accept"}, nil
	}}, "--elicit", "--wait", "100ms")
	handle := a.open()
	require.True(t, a.does("fake_set", gatedIn(handle)).Pending)
	require.False(t, asked.Load())
	require.Empty(t, d.world.get("a"))
	d.ok(append([]string{"approve", idIn(handle), "s1", "--yes"}, s.by("ann")...)...)
	require.Equal(t, "done", a.does("fake_set", gatedIn(handle)).Steps[0].State)
}

func TestAnAnswerToNoQuestionOfOursDecidesNothing(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--elicit", "--wait", "100ms")
	s := a.open()
	require.True(t, a.does("fake_set", gatedIn(s)).Pending, "who cannot be asked is not")
	digest := d.state(idIn(s)).Gates[0].Digest
	r, err := a.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "fake_set", Arguments: gatedIn(s),
		RequestState:   `{"request":"gated","step":"s1","digest":"` + string(digest) + `"}` + strings.Repeat("a", 26),
		InputResponses: sdk.InputResponseMap{"approval": &sdk.ElicitResult{Action: "accept"}},
	})
	require.NoError(t, err)
	require.Equal(t, mcp.BadParameter, outcomeIn(t, r).Error.Type)
	require.True(t, atGate(d.state(idIn(s))))
	require.Empty(t, d.world.get("a"))
}

func TestASessionCanBeRead(t *testing.T) {
	a := newDesk(t).newAgent(nil)
	s := a.open()
	a.does("fake_set", arguments{"session": s, "with": set("a", "x")})
	for _, name := range []string{"ledger", "diff"} {
		r, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "unwind://sessions/" + s + "/" + name})
		require.NoError(t, err, name)
		require.Contains(t, r.Contents[0].Text, `"summary": "set a to \"x\""`, name)
	}
	_, err := a.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "unwind://sessions/" + idIn(s) + "/ledger"})
	require.ErrorContains(t, err, mcp.BadHandle)
}
