package command

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
)

// wraps are the forms of a wrapped server.
var wraps = map[string]func(n *notes) *exec.Cmd{
	"command": func(n *notes) *exec.Cmd { return n.starter("--wait", "100ms") },
	"url": func(n *notes) *exec.Cmd {
		served := httptest.NewServer(mcptest.Handler(n.dir, false))
		n.Cleanup(func() { served.CloseClientConnections(); served.Close() })
		n.Setenv("NOTES_TOKEN", mcptest.Token)
		require.NoError(n,
			os.WriteFile(n.declarations, []byte(strings.Replace(mcptest.Declarations, "local: true", "", 1)), 0o600))
		n.command = served.URL
		return n.starter("--token", "env:NOTES_TOKEN", "--wait", "100ms")
	},
}

func TestWhatAWrappedServerHasBesidesTools(t *testing.T) {
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			n := newNotes(t)
			_, other := startNotes(t)
			ours, bare := connectWire(t, wrap(n)), connectWire(t, exec.Command("sh", "-c", other))
			type said struct {
				Capabilities map[string]any
				Instructions string
			}
			var its, all said
			require.NoError(t, json.Unmarshal([]byte(bare.hello), &its))
			require.NoError(t, json.Unmarshal([]byte(ours.hello), &all))
			// the calls of its tools can be tasks
			its.Capabilities["extensions"] = map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}
			require.Equal(t, its.Capabilities, all.Capabilities)
			require.Contains(t, all.Instructions, "unwind_status")
			require.True(t, strings.HasSuffix(all.Instructions, "\n\n"+its.Instructions), all.Instructions)
			for _, r := range []struct {
				method string
				params arguments
			}{
				{"resources/list", nil},
				{"resources/templates/list", nil},
				{"resources/read", arguments{"uri": "notes://all"}},
				{"resources/read", arguments{"uri": "note://there"}},
				{"resources/read", arguments{"uri": "note://nowhere"}},
				{"prompts/list", nil},
				{"prompts/get", arguments{"name": "shorten", "arguments": arguments{"id": "there"}}},
				{"prompts/get", arguments{"name": "lengthen"}},
				{"completion/complete",
					arguments{"ref": arguments{"type": "ref/prompt", "name": "shorten"},
						"argument": arguments{"name": "id", "value": "th"}}},
				{"logging/setLevel", arguments{"level": "warning"}},
			} {
				require.Equal(t, bare.ask(r.method, r.params), ours.ask(r.method, r.params), "%v", r)
			}
			require.Contains(t, ours.ask("resources/read", arguments{"uri": "note://there"}), "old")
			require.Contains(t,
				ours.ask("completion/complete",
					arguments{"ref": arguments{"type": "ref/prompt", "name": "shorten"},
						"argument": arguments{"name": "id", "value": "th"}}), `["there"]`)
		})
	}
}

func TestWhatAWrappedServerTellsItsClient(t *testing.T) {
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			n := newNotes(t)
			w := connectWire(t, wrap(n))
			w.ask("logging/setLevel", arguments{"level": "info"})
			w.ask("resources/subscribe", arguments{"uri": "note://there"})
			w.ask("tools/call",
				arguments{"name": "get_note", "arguments": arguments{"id": "there"}, "_meta": arguments{"progressToken": 7}})
			w.until("notifications/progress", `{"progressToken":7,"message":"half of get_note","progress":1,"total":2}`)
			w.ask("tools/call",
				arguments{"name": "put_note", "arguments": arguments{"id": "there", "body": "new"},
					"_meta": arguments{"progressToken": "mine"}})
			w.until("notifications/progress", `{"progressToken":"mine","message":"half of put_note","progress":1,"total":2}`)
			w.until("notifications/message", `{"data":"put","level":"info","logger":"notes"}`)
			w.until("notifications/resources/updated", `{"uri":"note://there"}`)

			w.call("learn", arguments{"name": "tally"})
			w.until("notifications/tools/list_changed", `{}`)
			w.until("notifications/resources/list_changed", `{}`)
			w.until("notifications/prompts/list_changed", `{}`)
			require.Contains(t, w.ask("resources/list", nil), "notes://tally")
			require.Contains(t, w.ask("prompts/list", nil), `"tally"`)
			require.Contains(t, w.ask("tools/list", nil), `"tally"`)
			require.Contains(t, w.call("tally", nil), `\"pending\":true`, "it is not declared, so a person is asked")
		})
	}
}

// A server that was started again tells its client what it was asked to tell.
func TestASubscriptionOutlivesTheServerThatIsWrapped(t *testing.T) {
	n := newNotes(t)
	w := connectWire(t, n.starter())
	w.ask("resources/subscribe", arguments{"uri": "note://there"})
	n.fault(mcptest.Lose)
	require.Contains(t, w.call("put_note", arguments{"id": "there", "body": "one"}), "the answer of the server was lost")
	n.fault("")
	w.until("notifications/resources/updated", `{"uri":"note://there"}`)
	w.told.clear()
	w.call("put_note", arguments{"id": "there", "body": "two"})
	w.until("notifications/resources/updated", `{"uri":"note://there"}`)
}
