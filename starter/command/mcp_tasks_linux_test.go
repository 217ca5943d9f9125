package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// tasker is a client of the protocol of 2026-07-28, which says in each request what it can do. It
// knows the extension for tasks, which the SDK's client does not.
type tasker struct {
	*testing.T

	can    arguments
	answer func(method string, params arguments) *jsonrpc.Response
}

var (
	takesTasks  = arguments{"extensions": arguments{"io.modelcontextprotocol/tasks": arguments{}}}
	asksUserToo = arguments{"extensions": arguments{"io.modelcontextprotocol/tasks": arguments{}},
		"elicitation": arguments{"form": arguments{}}}
	takesNothing = arguments{}
)

func newTasker(t *testing.T, server *exec.Cmd, can arguments) tasker {
	t.Helper()
	c, err := (&sdk.CommandTransport{Command: server}).Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return tasker{t, can, wire{T: t, Connection: c, told: &notices{}}.answer}
}

// with is the same client, which says that it can do something else.
func (c tasker) with(can arguments) tasker { c.can = can; return c }

// said is what a server has answered: a task, the result of a call, or an error.
type said struct {
	ResultType        string                         `json:"resultType"`
	TaskID            string                         `json:"taskId"`
	Status            string                         `json:"status"`
	StatusMessage     string                         `json:"statusMessage"`
	CreatedAt         time.Time                      `json:"createdAt"`
	LastUpdatedAt     time.Time                      `json:"lastUpdatedAt"`
	TTL               json.RawMessage                `json:"ttlMs"`
	PollInterval      int                            `json:"pollIntervalMs"`
	InputRequests     map[string]map[string]any      `json:"inputRequests"`
	RequestState      string                         `json:"requestState"`
	StructuredContent mcp.Outcome                    `json:"structuredContent"`
	IsError           bool                           `json:"isError"`
	Result            *said                          `json:"result"`
	Capabilities      struct{ Extensions arguments } `json:"capabilities"`

	raw   string
	error *jsonrpc.Error
}

func (c tasker) request(method string, params arguments) (s said) {
	c.Helper()
	params = maps.Clone(params)
	params["_meta"] = arguments{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": c.can,
		"io.modelcontextprotocol/clientInfo": arguments{"name": "test", "version": "1"},
	}
	switch a := c.answer(method, params); {
	case a.Error != nil:
		require.ErrorAs(c, a.Error, &s.error)
	default:
		s.raw = string(a.Result)
		require.NoError(c, json.Unmarshal(a.Result, &s), s.raw)
	}
	return s
}

func (c tasker) tool(name string, in arguments) said {
	c.Helper()
	return c.request("tools/call", arguments{"name": name, "arguments": in})
}

func (c tasker) get(task string) said {
	c.Helper()
	return c.request("tasks/get", arguments{"taskId": task})
}

// acknowledges makes a request whose answer says nothing else.
func (c tasker) acknowledges(method string, params arguments) {
	c.Helper()
	var fields map[string]any
	require.NoError(c, json.Unmarshal([]byte(c.request(method, params).raw), &fields))
	delete(fields, "_meta")
	require.Equal(c, map[string]any{"resultType": "complete"}, fields)
}

// ended polls a task until it has ended.
func (c tasker) ended(task string) (s said) {
	c.Helper()
	require.Eventually(c, func() bool { s = c.get(task); return s.Status != "working" }, waitFor, tick)
	require.Equal(c, "completed", s.Status, s.raw)
	return *s.Result
}

func (c tasker) open() string {
	c.Helper()
	return c.tool("open", arguments{"name": c.Name()}).StructuredContent.Session
}

func TestACallThatWaitsForAPersonIsATask(t *testing.T) {
	d := newDesk(t)
	c := newTasker(t, d.commandMCP("--wait", "100ms"), takesTasks)
	require.Contains(t, c.request("server/discover", arguments{}).Capabilities.Extensions, "io.modelcontextprotocol/tasks")
	s := c.open()
	made := c.tool("fake_set", gatedIn(s))
	require.Equal(t, []any{"task", "working", "step s1 waits for a person's approval", "null", 5000},
		[]any{made.ResultType, made.Status, made.StatusMessage, string(made.TTL), made.PollInterval}, made.raw)
	require.WithinDuration(t, time.Now(), made.CreatedAt, time.Minute)
	require.Equal(t, made.CreatedAt, made.LastUpdatedAt)

	now := c.get(made.TaskID)
	require.Equal(t, []any{"complete", "working", made.TaskID, made.CreatedAt},
		[]any{now.ResultType, now.Status, now.TaskID, now.CreatedAt}, now.raw)
	require.Empty(t, d.world.get("a"))
	other := newTasker(t, d.commandMCP(), takesTasks) // the client, or the server, may have been started again
	require.Equal(t, now.raw, other.get(made.TaskID).raw)
	d.ok("approve", idIn(s), "s1", "--yes")
	done := other.ended(made.TaskID)
	require.False(t, done.IsError)
	require.Equal(t, []any{"gated", "done"}, []any{done.StructuredContent.Request, done.StructuredContent.Steps[0].State})
	require.Equal(t, "x", d.world.get("a"))
	over := c.get(made.TaskID)
	require.Equal(t, []any{"complete", made.CreatedAt, 0}, []any{over.ResultType, over.CreatedAt, over.PollInterval},
		over.raw)
	require.True(t, over.LastUpdatedAt.After(made.CreatedAt))
	require.Equal(t, over.raw, other.get(made.TaskID).raw)

	again := c.tool("fake_set", gatedIn(s))
	require.Equal(t, "done", again.StructuredContent.Steps[0].State, "the call repeated is answered itself: %s", again.raw)
	require.Equal(t, "committed", c.tool("finish", arguments{"session": s}).StructuredContent.Report.Status)
	require.Equal(t, over.Result.StructuredContent.Steps, c.ended(made.TaskID).StructuredContent.Steps,
		"also after the end")
}

// Who does not say in a request that it can take a task is never given one.
func TestATaskIsOnlyForWhoTakesThem(t *testing.T) {
	d := newDesk(t)
	c := newTasker(t, d.commandMCP("--wait", "100ms"), takesTasks)
	s := c.open()
	task := c.tool("fake_set", gatedIn(s)).TaskID
	plain := c.with(takesNothing)
	waits := plain.tool("fake_set", gatedIn(s))
	require.True(t, waits.StructuredContent.Pending, waits.raw)
	require.Empty(t, waits.TaskID)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		no := plain.request(method, arguments{"taskId": task})
		require.NotNil(t, no.error, no.raw)
		require.EqualValues(t, sdk.CodeMissingRequiredClientCapabilities, no.error.Code)
		require.JSONEq(t, `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`,
			string(no.error.Data))
		for _, unknown := range []string{"", "gated", task + "a", "a" + task, s} {
			no := c.request(method, arguments{"taskId": unknown})
			require.NotNil(t, no.error, no.raw)
			require.EqualValues(t, jsonrpc.CodeInvalidParams, no.error.Code)
			require.Contains(t, no.error.Message, "BadHandle: taskId")
		}
	}
	require.True(t, atGate(d.state(idIn(s))))
}

func TestAClientThatDropsItsTaskHasItsStepRejected(t *testing.T) {
	d := newDesk(t)
	c := newTasker(t, d.commandMCP(), takesTasks)
	s := c.open()
	task := c.tool("fake_set", gatedIn(s)).TaskID
	for range 2 {
		c.acknowledges("tasks/cancel", arguments{"taskId": task})
		no := c.ended(task)
		require.True(t, no.IsError)
		require.Equal(t, "step s1 was rejected by the agent: it canceled its call", no.StructuredContent.Steps[0].Error)
	}
	require.Empty(t, d.world.get("a"))
}

// No rejection of an agent's counts where persons must sign; what it has asked for is taken back all the
// same.
func TestAClientThatDropsItsTaskAtASignedGateHasItsStepTakenBack(t *testing.T) {
	d, _ := newSigned(t)
	c := newTasker(t, d.commandMCP(), takesTasks)
	s := c.open()
	task := c.tool("fake_set", gatedIn(s)).TaskID
	require.True(t, d.until(idIn(s), atGate).Gates[0].Signed)
	for range 2 {
		c.acknowledges("tasks/cancel", arguments{"taskId": task})
		taken := c.ended(task)
		require.True(t, taken.IsError)
		require.Equal(t, "rolled-back", taken.StructuredContent.Steps[0].State)
		require.Contains(t, taken.StructuredContent.Steps[0].Notes, "rolled back by the agent: it canceled its call")
	}
	require.Empty(t, d.state(idIn(s)).Gates)
	require.Empty(t, d.world.get("a"))
	require.False(t, c.tool("abort", arguments{"session": s}).IsError)
	d.until(idIn(s), closed)
	require.Equal(t, compensations.Unwound, d.state(idIn(s)).Report.Status)
}

// The user of the client is asked in the call itself first; what comes later is asked in the task.
func TestTheUserOfAClientDecidesAboutItsTask(t *testing.T) {
	d := newDesk(t)
	c := newTasker(t, d.commandMCP("--elicit"), asksUserToo)
	s := c.open()
	call := arguments{"name": "steps", "arguments": arguments{"session": s, "request": "both", "steps": []any{
		map[string]any{"uses": "fake.set", "gate": "ask", "with": set("a", "x")},
		map[string]any{"uses": "fake.set", "gate": "ask", "with": set("b", "y")},
	}}}
	first := c.request("tools/call", call)
	require.Equal(t, "input_required", first.ResultType, first.raw)
	call["requestState"], call["inputResponses"] = first.RequestState, arguments{"approval": arguments{"action": "cancel"}}
	task := c.request("tools/call", call)
	require.Equal(t, []any{"task", "working"}, []any{task.ResultType, task.Status}, task.raw)
	asked := c.get(task.TaskID)
	require.Equal(t, "working", asked.Status, "who has left a question is not asked it again: %s", asked.raw)
	d.ok("approve", idIn(s), "s1", "--yes")
	require.Eventually(t, func() bool { asked = c.get(task.TaskID); return asked.Status == "input_required" }, waitFor,
		tick)
	require.Empty(t, c.with(takesTasks).get(task.TaskID).InputRequests, "who cannot be asked is not")
	require.Len(t, asked.InputRequests, 1)
	require.Empty(t, d.world.get("b"))
	for id, question := range asked.InputRequests {
		require.Equal(t, "elicitation/create", question["method"])
		require.Contains(t, question["params"].(map[string]any)["message"], "Approve step s2 (fake.set)?")
		accept := arguments{"action": "accept", "content": arguments{"why": "it is fine"}}
		update := func(c tasker, responses arguments) {
			c.acknowledges("tasks/update", arguments{"taskId": task.TaskID, "inputResponses": responses})
		}
		update(c, arguments{"approval": accept, id + "0": accept})
		update(c.with(takesTasks), arguments{id: accept})
		require.Equal(t, asked.raw, c.get(task.TaskID).raw, "it answers no question that is open")
		update(c, arguments{id: accept})
		update(c, arguments{id: accept})
	}
	done := c.ended(task.TaskID)
	require.False(t, done.IsError)
	require.Equal(t, []string{"approved by the user of test: it is fine"}, done.StructuredContent.Steps[1].Notes)
	require.Equal(t, "y", d.world.get("b"))
}

// Nothing is kept between the requests.
func TestATaskIsPolledOverHTTP(t *testing.T) {
	t.Setenv("MCP_TEST_TOKEN", "a-token-that-is-secret")
	d := newLoneDesk(t)
	r := d.begin("mcp", "--listen", "127.0.0.1:0", "--token", "env:MCP_TEST_TOKEN")
	d.prints(r, "MCP at http://")
	url := regexp.MustCompile(`http://\S+`).FindString(r.out.String())
	c := tasker{t, takesTasks, func(method string, params arguments) *jsonrpc.Response {
		t.Helper()
		body, err := json.Marshal(arguments{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
		require.NoError(t, err)
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		require.NoError(t, err)
		name, _ := params["name"].(string)
		task, _ := params["taskId"].(string)
		for key, value := range map[string]string{
			"Authorization": "Bearer a-token-that-is-secret", "Content-Type": "application/json",
			"Accept":               "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name + task,
		} {
			ask.Header.Set(key, value)
		}
		answer, err := http.DefaultClient.Do(ask)
		require.NoError(t, err)
		said, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		_, data, isStream := bytes.Cut(said, []byte("data: "))
		if isStream {
			said, _, _ = bytes.Cut(data, []byte("\n"))
		}
		m, err := jsonrpc.DecodeMessage(said)
		require.NoError(t, err, "%s", said)
		return m.(*jsonrpc.Response)
	}}
	s := c.open()
	task := c.tool("fake_set", gatedIn(s)).TaskID
	require.Equal(t, "working", c.get(task).Status)
	d.ok("approve", idIn(s), "s1", "--yes")
	require.Equal(t, "done", c.ended(task).StructuredContent.Steps[0].State)
	c.tool("abort", arguments{"session": s})
	require.Empty(t, d.world.get("a"))
	r.stop()
	require.Equal(t, statusOK, d.ended(r).status)
}

// A task ends with what its tool would have answered.
func TestATaskOfAWrappedServerEndsWithItsAnswer(t *testing.T) {
	n := newNotes(t)
	before := n.manifest()
	c := newTasker(t, n.starter(), takesTasks)
	sent := c.tool("send_mail", arguments{"text": "hello"})
	require.Equal(t, "working", sent.Status, sent.raw)
	n.ok("approve", n.ids()[0], "s1", "--yes")
	c.ended(sent.TaskID)
	var task struct{ Result json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(c.get(sent.TaskID).raw), &task))
	_, other := startNotes(t)
	require.JSONEq(t, connectWire(t, exec.Command("sh", "-c", other)).call("send_mail", arguments{"text": "hello"}),
		string(task.Result))
	require.Equal(t, before+"hello\n", n.manifest())

	no := c.tool("send_mail", arguments{"text": "again"})
	n.ok("reject", n.ids()[0], "s2", "--why", "once is enough")
	rejected := c.ended(no.TaskID)
	require.True(t, rejected.IsError)
	require.Contains(t, c.get(no.TaskID).raw, "once is enough")
	require.Equal(t, before+"hello\n", n.manifest())

	n.fault(mcptest.Break)
	broken := c.tool("send_mail", arguments{"text": "broken"})
	n.ok("approve", n.ids()[0], "s3", "--yes")
	require.Eventually(t, func() bool { broken = c.get(broken.TaskID); return broken.Status != "working" }, waitFor, tick)
	require.Equal(t, "failed", broken.Status, broken.raw)
	require.Contains(t, broken.raw, `"error":{"code":-32603,"message":"it broke"}`)
}

func TestATaskOfTheShellEndsWithItsOutput(t *testing.T) {
	d := newDesk(t)
	box := containertest.Start(t)
	d.stopWorker()
	d.startWorker(func(c *host.Config) {
		*c = c.With(&container.Settings{})
		state := c.State
		t.Cleanup(func() { d.stopWorker(); containertest.RemoveLayers(t, state) })
	})
	c := newTasker(t, d.commandMCP(), takesTasks)
	s := c.open()
	task := c.tool("shell", arguments{"session": s, "container": box.Name, "command": "echo said", "gate": "ask"}).TaskID
	d.ok("approve", idIn(s), "s1", "--yes")
	done := c.ended(task).StructuredContent
	require.Equal(t, &mcp.Shell{Stdout: "said\n"}, done.Shell)
	require.Empty(t, done.Steps[0].Outputs)
}
