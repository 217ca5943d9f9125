package command

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A fork of a conversation from before a rollback makes its old calls again.
func TestACallFromBeforeARollbackNeverActsAgain(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil)
	s := a.open()
	pay := func(request, id, value string) arguments {
		return arguments{"session": s, "request": request, "id": id, "with": set("bill", value)}
	}
	a.does("savepoint", arguments{"session": s, "name": "before"})
	require.Equal(t, "done", a.does("fake_set", pay("pay", "pay", "paid")).Steps[0].State)
	back := arguments{"session": s, "request": "back", "to": "before"}
	a.does("rollback", back)
	d.world.set("bill", "open")

	fork := d.newAgent(nil)
	again, isError := fork.call("fake_set", pay("pay", "pay", "paid"))
	require.True(t, isError, "it is not done")
	require.Equal(t, "rolled-back", again.Steps[0].State)
	require.Contains(t, again.Next, "rolled back since; this request does not do it again")
	require.Contains(t, fork.isRefused("fake_set", pay("pay", "pay", "paid in full")).Text, "asked for something else")
	require.Contains(t, fork.isRefused("fake_set", pay("", "pay", "paid")).Text, `the session has had a step "pay"`)
	require.Equal(t, "rolled-back", fork.does("status", arguments{"session": s, "request": "pay"}).Steps[0].State)
	call := &sdk.CallToolParams{Name: "fake_set", Arguments: arguments{"session": s, "with": set("bill", "paid")}}
	call.Meta = sdk.Meta{"claudecode/toolUseId": "pay"} // a client's own id of a call is a request too
	r, err := fork.CallTool(t.Context(), call)
	require.NoError(t, err)
	require.Contains(t, outcomeIn(t, r).Error.Text, "asked for something else")
	require.Equal(t, "open", d.world.get("bill"))

	require.Equal(t, "done", fork.does("fake_set", pay("anew", "", "paid")).Steps[0].State)
	fork.does("rollback", back)
	require.Equal(t, "paid", d.world.get("bill"), "the rollback of before takes back nothing of after")
}

// sealed keeps what a client is given to send with its user's answer.
type sealed struct {
	sdk.Transport
	sdk.Connection

	states []string
}

func (s *sealed) Connect(ctx context.Context) (c sdk.Connection, err error) {
	s.Connection, err = s.Transport.Connect(ctx)
	return s, err
}

func (s *sealed) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := s.Connection.Read(ctx)
	if r, is := m.(*jsonrpc.Response); is {
		var made struct{ RequestState string }
		if json.Unmarshal(r.Result, &made) == nil && made.RequestState != "" {
			s.states = append(s.states, made.RequestState)
		}
	}
	return m, err
}

func TestAnApprovalFromBeforeARollbackOpensNoGateAfterIt(t *testing.T) {
	d := newDesk(t)
	said := "accept"
	kept := &sealed{Transport: d.starterMCP("--elicit", "--wait", "100ms")}
	a := d.connectAgent(kept, "", &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: said}, nil
		},
	})
	s := a.open()
	gated := func(request string) arguments {
		return arguments{"session": s, "request": request, "gate": "ask", "with": set("bill", "paid")}
	}
	require.Equal(t, "s1", a.does("fake_set", gated("one")).Steps[0].ID, "it may still run")
	d.until(idIn(s), func(s protocol.State) bool { return s.Steps[0].State == protocol.Done })
	require.Len(t, kept.states, 1)
	a.does("rollback", arguments{"session": s, "step": "s1"})

	said = "cancel" // from here on nobody approves
	require.True(t, a.does("fake_set", gated("two")).Pending)
	require.Len(t, kept.states, 2)
	opensNothing := func(state string) {
		t.Helper()
		for _, request := range []string{"one", "two", ""} {
			r, err := a.CallTool(t.Context(), &sdk.CallToolParams{
				Name: "fake_set", Arguments: gated(request), RequestState: state,
				InputResponses: sdk.InputResponseMap{"approval": &sdk.ElicitResult{Action: "accept"}},
			})
			require.NoError(t, err)
			require.True(t, r.IsError)
			require.Contains(t, outcomeIn(t, r).Error.Text, "approve decided nothing")
		}
		require.True(t, atGate(d.state(idIn(s))))
		require.Empty(t, d.world.get("bill"))
	}
	opensNothing(kept.states[0])
	a.does("rollback", arguments{"session": s, "step": "s2"})
	a.does("fake_set", gated("three"))
	opensNothing(kept.states[0])
	opensNothing(kept.states[1])

	// The seal is for one session.
	other := a.open()
	r, err := a.CallTool(t.Context(), &sdk.CallToolParams{
		Name: "fake_set", Arguments: arguments{"session": other, "with": set("bill", "paid")}, RequestState: kept.states[2],
		InputResponses: sdk.InputResponseMap{"approval": &sdk.ElicitResult{Action: "accept"}},
	})
	require.NoError(t, err)
	require.Equal(t, mcp.BadParameter, outcomeIn(t, r).Error.Type)

	d.ok("approve", idIn(s), "s3", "--yes")
	d.until(idIn(s), func(s protocol.State) bool { return s.Steps[2].State == protocol.Done })
	require.Equal(t, "paid", d.world.get("bill"), "a person's approval of what waits now counts")
	a.does("rollback", arguments{"session": s, "step": "s3"})
	require.True(t, a.does("redo", arguments{"session": s}).Pending)
	opensNothing(kept.states[2]) // of the same step and the same change
}
