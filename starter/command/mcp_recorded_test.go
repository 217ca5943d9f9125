package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// reply is what a server answers to one message.
type reply struct {
	ID     *int `json:"id"`
	Result struct {
		ProtocolVersion   string      `json:"protocolVersion"`
		Tools             []any       `json:"tools"`
		StructuredContent mcp.Outcome `json:"structuredContent"`
		IsError           bool        `json:"isError"`
	} `json:"result"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

const methodNotFound = -32601

// Each file holds the messages of one agent's client as that has sent them to servers of others, by
// the logs that people have published, but for the tools and what they are called with. SESSION is
// the handle that open has returned.
func TestTheMessagesOfKnownAgentsAreAnswered(t *testing.T) {
	files, err := filepath.Glob("testdata/mcp/*.jsonl")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			d := newDesk(t)
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			said := d.replay(raw)
			require.Equal(t, askedVersion(t, raw), said[0].Result.ProtocolVersion)

			var tools, done []reply
			handle := ""
			for _, r := range said {
				if r.Error != nil {
					require.Equal(t, methodNotFound, r.Error.Code, "it is asked for prompts, and has none")
				}
				require.False(t, r.Result.IsError, "%+v", r)
				if r.Result.Tools != nil {
					tools = append(tools, r)
				}
				handle = max(handle, r.Result.StructuredContent.Session)
				if len(r.Result.StructuredContent.Steps) > 0 {
					done = append(done, r)
				}
			}
			require.Len(t, tools, 1)
			require.Equal(t, "x", d.world.get("a"))
			require.Len(t, d.state(idIn(handle)).Steps, 1, "a call that came twice is one step")
			for _, r := range done {
				require.Equal(t, done[0].Result, r.Result)
			}
			d.until(idIn(handle), func(s protocol.State) bool { return s.Report.Status == "committed" })
		})
	}
}

func askedVersion(t *testing.T, raw []byte) string {
	first, _, _ := bytes.Cut(raw, []byte("\n"))
	var hello struct {
		Params struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"params"`
	}
	require.NoError(t, json.Unmarshal(first, &hello))
	return hello.Params.ProtocolVersion
}

// replay sends messages to a starter mcp, each when those before it are answered, and returns the
// answers.
func (d *desk) replay(messages []byte) (all []reply) {
	d.Helper()
	starter := exec.Command(os.Args[0], "mcp")
	starter.Env = append(os.Environ(), isStarter+"=1", "UNWIND_QUEUE="+d.queue)
	starter.Stderr = d.Output()
	in, err := starter.StdinPipe()
	require.NoError(d, err)
	out, err := starter.StdoutPipe()
	require.NoError(d, err)
	require.NoError(d, starter.Start())
	answers, handle := bufio.NewReader(out), ""
	for message := range strings.Lines(string(messages)) {
		message = strings.ReplaceAll(message, "SESSION", handle)
		_, err := io.WriteString(in, message)
		require.NoError(d, err)
		var sent reply
		require.NoError(d, json.Unmarshal([]byte(message), &sent))
		for answered := sent.ID == nil; !answered; {
			line, err := answers.ReadBytes('\n')
			require.NoError(d, err, message)
			var r reply
			require.NoError(d, json.Unmarshal(line, &r), "%s", line)
			if answered = r.ID != nil && *r.ID == *sent.ID; answered {
				all = append(all, r)
				handle = max(handle, r.Result.StructuredContent.Session)
			}
		}
	}
	require.NoError(d, in.Close())
	require.NoError(d, starter.Wait())
	return all
}
