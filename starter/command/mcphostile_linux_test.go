package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// newHostile is a starter that wraps a hostile server.
func newHostile(t *testing.T) *notes {
	n := &notes{desk: newLoneDesk(t), dir: t.TempDir()}
	command, env, err := mcptest.StartHostile(n.dir)
	require.NoError(t, err)
	n.command = "export " + env[0] + "; " + command
	n.declarations = filepath.Join(t.TempDir(), "hostile.yaml")
	require.NoError(t, os.WriteFile(n.declarations, []byte(mcptest.HostileDeclarations), 0o600))
	t.Setenv("UNWIND_STATE", t.TempDir())
	return n
}

func TestAgentsCallManyToolsAtOnce(t *testing.T) {
	n := newNotes(t)
	a := n.agent(nil)
	before := n.manifest()
	const calls = 50
	answers := make([]*sdk.CallToolResult, calls)
	failures := make([]error, calls)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			answers[i], failures[i] = a.CallTool(t.Context(),
				&sdk.CallToolParams{Name: "put_note", Arguments: arguments{"id": fmt.Sprint("n", i), "body": "x"}})
		})
	}
	all.Wait()
	for i, answer := range answers {
		require.NoError(t, failures[i])
		require.False(t, answer.IsError, "%v", answer.Content)
	}
	require.Len(t, n.ids(), 1)
	require.Len(t, a.does("unwind_status", nil).Steps, calls)
	require.Equal(t, "unwound", a.does("unwind_abort", nil).Report.Status)
	require.Equal(t, before, n.manifest())
}

func TestACallThatIsCancelledIsNamed(t *testing.T) {
	n := newNotes(t)
	a := n.agent(nil)
	n.fault(mcptest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := a.CallTool(ctx, &sdk.CallToolParams{Name: "put_note", Arguments: arguments{"id": "there", "body": "new"}})
		ended <- err
	}()
	require.Eventually(t, func() bool { return mcptest.HasStalled(n.dir) }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	const note = "the agent's client cancelled its call of put_note, step s1, or left: what is under way goes on"
	n.until(n.ids()[0], func(s protocol.State) bool {
		return slices.ContainsFunc(s.Session.Notes, func(each protocol.Note) bool { return each.Text == note })
	})
}

func TestAProxyEndsAtASignal(t *testing.T) {
	for name, fault := range map[string]string{"idle": "", "during a call": mcptest.Stall} {
		t.Run(name, func(t *testing.T) {
			n := newNotes(t)
			c := n.starter()
			in, err := c.StdinPipe()
			require.NoError(t, err)
			out, err := c.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, c.Start())
			say := func(m arguments) {
				raw, err := json.Marshal(m)
				require.NoError(t, err)
				_, err = in.Write(append(raw, '\n'))
				require.NoError(t, err)
			}
			lines := bufio.NewReader(out)
			say(arguments{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": arguments{
				"protocolVersion": "2025-11-25", "capabilities": arguments{},
				"clientInfo": arguments{"name": "test", "version": "1"},
			}})
			_, err = lines.ReadString('\n')
			require.NoError(t, err)
			say(arguments{"jsonrpc": "2.0", "method": "notifications/initialized"})
			n.fault(fault)
			say(arguments{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
				"params": arguments{"name": "put_note", "arguments": arguments{"id": "there", "body": "new"}}})
			if fault == "" {
				_, err = lines.ReadString('\n')
				require.NoError(t, err)
			} else {
				require.Eventually(t, func() bool { return mcptest.HasStalled(n.dir) }, time.Minute, time.Millisecond)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			began := time.Now()
			require.NoError(t, c.Process.Signal(syscall.SIGTERM))
			select {
			case <-ended:
				t.Logf("it has ended after %v", time.Since(began))
			case <-time.After(time.Minute):
				require.Fail(t, "it goes on", n.log.String())
			}
			_, err = n.client.DescribeWorkflow(t.Context(), n.ids()[0], "")
			require.NoError(t, err, "the session stays")
		})
	}
}

// What most programs cannot hold reaches the agent as the server has sent it, and does no harm to
// the session.
func TestAnAnswerIsPassedOnAsItWasSent(t *testing.T) {
	n := newHostile(t)
	w := connectWire(t, n.starter())
	answer := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, "answer"), []byte(text), 0o600))
	}
	const numbers = `{"content":[],"structuredContent":{"a":1e400,"b":9007199254740993,"c":-0,"d":1.10}}`
	answer(numbers)
	require.Equal(t, numbers, w.call("make", nil))
	for value, want := range map[string]string{`"\ud800"`: `value: a string has`,
		`1e400`: "value: the number 1e400 is out of range", `{"a":1,"a":1}`: "two fields"} {
		require.Contains(t, w.call("put", arguments{"value": json.RawMessage(value)}), want)
	}
	require.Equal(t, `{"content":[]}`,
		w.call("put", arguments{"value": json.RawMessage(`[9007199254740993,"` + "\u202e" + `"]`)}))
	kept, err := os.ReadFile(filepath.Join(n.dir, "kept"))
	require.NoError(t, err)
	require.Equal(t, `[9007199254740993,"`+"\u202e"+`"]`, string(kept))

	var o struct{ StructuredContent mcp.Outcome }
	status := w.call("unwind_status", nil)
	require.NoError(t, json.Unmarshal([]byte(status), &o), status)
	first := o.StructuredContent.Steps[0]
	require.Equal(t, []string{"given as text, because the number would be rounded: data.a, data.b"}, first.Notes)
	answer(`{"content":[],"structuredContent":{"a":"\ud800"}}`)
	require.Contains(t, w.call("make", nil),
		`its answer cannot be kept as the server has sent it: structuredContent.a: a string has`)
}
