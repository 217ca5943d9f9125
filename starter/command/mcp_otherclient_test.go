package command

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/stretchr/testify/require"

	starter "github.com/seed-62bf7108/unwind/starter/mcp"
)

// other is a client of the protocol that was written by others than its server's SDK.
type other struct {
	*desk
	*client.Client
}

// call calls a tool.
func (o other) call(tool string, in arguments) (outcome starter.Outcome, isError bool) {
	o.Helper()
	r, err := o.CallTool(o.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: tool, Arguments: in}})
	require.NoError(o, err)
	raw, err := json.Marshal(r.StructuredContent)
	require.NoError(o, err)
	require.NoError(o, json.Unmarshal(raw, &outcome))
	return outcome, r.IsError
}

// does calls a tool that must do what it was asked for.
func (o other) does(tool string, in arguments) starter.Outcome {
	o.Helper()
	outcome, isError := o.call(tool, in)
	require.False(o, isError, "%+v", outcome)
	return outcome
}

// assenting answers every question with yes.
type assenting struct{ shown string }

func (u *assenting) Elicit(_ context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	u.shown = r.Params.Message
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"why": "it is fine"},
	}}, nil
}

// connect says hello.
func (d *desk) connect(t transport.Interface, as ...client.ClientOption) other {
	d.Helper()
	c := client.NewClient(t, as...)
	d.Cleanup(func() { _ = c.Close() })
	require.NoError(d, c.Start(d.Context()))
	hello := mcp.InitializeRequest{
		Params: mcp.InitializeParams{ClientInfo: mcp.Implementation{Name: "other", Version: "1"}}}
	_, err := c.Initialize(d.Context(), hello)
	require.NoError(d, err)
	return other{d, c}
}

func TestAClientOfOthersWorksInASession(t *testing.T) {
	t.Setenv("MCP_TEST_TOKEN", "a-token-that-is-secret")
	ways := map[string]func(d *desk) transport.Interface{
		"by its pipes": func(*desk) transport.Interface {
			return transport.NewStdio(os.Args[0], []string{isStarter + "=1"}, "mcp", "--elicit")
		},
		"by HTTP": func(d *desk) transport.Interface {
			r := d.begin("mcp", "--elicit", "--listen", "127.0.0.1:0", "--token", "env:MCP_TEST_TOKEN")
			d.prints(r, "MCP at http://")
			d.Cleanup(func() { r.stop(); d.ended(r) })
			h, err := transport.NewStreamableHTTP(regexp.MustCompile(`http://\S+`).FindString(r.out.String()),
				transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer a-token-that-is-secret"}))
			require.NoError(d, err)
			return h
		},
	}
	versions := []string{"2026-07-28", "2025-11-25", "2025-06-18"}
	for way, open := range ways {
		for _, version := range versions {
			t.Run(way+" "+version, func(t *testing.T) {
				d, u := newLoneDesk(t), &assenting{}
				o := d.connect(open(d), client.WithProtocolVersion(version), client.WithElicitationHandler(u))
				require.Equal(t, version, o.ProtocolVersion())
				tools, err := o.ListTools(t.Context(), mcp.ListToolsRequest{})
				require.NoError(t, err)
				require.Contains(t, namesOf(tools.Tools), "fake_set")

				s := o.does("open", arguments{"name": t.Name()}).Session
				o.does("fake_set", arguments{"session": s, "with": set("a", "x")})
				failed, isError := o.call("fake_set",
					arguments{"session": s, "with": map[string]any{"key": "b", "value": "y", "fail": true}})
				require.True(t, isError)
				require.Equal(t, "restored", failed.Steps[0].Undone.Outcome)

				done := o.does("fake_set", arguments{"session": s, "gate": "ask", "with": set("a", "z")})
				require.Equal(t, []string{"approved by the user of other: it is fine"}, done.Steps[0].Notes)
				require.Contains(t, u.shown, "-x\n+z\n")

				ledger, err := o.ReadResource(t.Context(),
					mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "unwind://sessions/" + s + "/ledger"}})
				require.NoError(t, err)
				require.Contains(t, ledger.Contents[0].(mcp.TextResourceContents).Text, `"summary": "set a to \"z\""`)

				o.does("rollback", arguments{"session": s, "step": done.Steps[0].ID})
				require.Equal(t, "x", d.world.get("a"))
				require.Equal(t, "committed", o.does("finish", arguments{"session": s}).Report.Status)
				require.Equal(t, []string{"x", ""}, []string{d.world.get("a"), d.world.get("b")})
			})
		}
	}
}

func namesOf(tools []mcp.Tool) (names []string) {
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}
