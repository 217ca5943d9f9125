package command

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// notes is a server of notes, and a starter that wraps it.
type notes struct {
	*desk

	dir, command, declarations string
	log                        testrun.Buffer // of the starter
}

func newNotes(t *testing.T) *notes {
	n := &notes{desk: newLoneDesk(t)}
	n.dir, n.command = startNotes(t)
	n.declarations = filepath.Join(t.TempDir(), "notes.yaml")
	require.NoError(t, os.WriteFile(n.declarations, []byte(mcptest.Declarations), 0o600))
	t.Setenv("UNWIND_STATE", t.TempDir())
	return n
}

// startNotes makes a folder with one note, and returns the command line of its server.
func startNotes(t *testing.T) (dir, command string) {
	dir = t.TempDir()
	command, env, err := mcptest.Start(dir)
	require.NoError(t, err)
	require.NoError(t, mcptest.Put(dir, mcptest.Note{ID: "there", Title: "note there", Body: "old"}))
	return dir, "export " + env[0] + "; " + command
}

func (n *notes) manifest() string {
	n.Helper()
	m, err := mcptest.Manifest(n.dir)
	require.NoError(n, err)
	return m
}

func (n *notes) fault(what string) {
	n.Helper()
	require.NoError(n, os.WriteFile(filepath.Join(n.dir, "fault"), []byte(what), 0o600))
}

func (n *notes) starter(flags ...string) *exec.Cmd {
	c := exec.Command(os.Args[0],
		append([]string{"mcp", "--wrap", n.command, "--declarations", n.declarations}, flags...)...)
	c.Env = append(os.Environ(), isStarter+"=1")
	c.Stderr = &n.log
	return c
}

// agent is the SDK's client.
func (n *notes) agent(o *sdk.ClientOptions, flags ...string) agent {
	n.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(n.Context(),
		&sdk.CommandTransport{Command: n.starter(flags...)}, nil)
	require.NoError(n, err, n.log.String())
	n.Cleanup(func() { _ = c.Close() })
	require.Eventually(n, func() bool { return len(n.ids()) > 0 }, time.Minute, time.Millisecond,
		"what it writes is read beside what it answers")
	return agent{n.desk, c}
}

var sessionID = regexp.MustCompile(`session-[A-Z0-9]+`)

// ids are the sessions that the starter has told of.
func (n *notes) ids() []string { return sessionID.FindAllString(n.log.String(), -1) }

// wire is a client that sees what a server sends.
type wire struct {
	*testing.T
	sdk.Connection

	hello string
	told  *notices
}

// notices are what a server has notified its client of.
type notices struct{ all []jsonrpc.Request }

func (n *notices) clear() { n.all = nil }

func (n *notices) has(method, params string) bool {
	return slices.ContainsFunc(n.all, func(r jsonrpc.Request) bool {
		return r.Method == method && assert.ObjectsAreEqual(decoded(string(r.Params)), decoded(params))
	})
}

func decoded(text string) (v any) {
	if json.Unmarshal([]byte(cmp.Or(text, "{}")), &v) != nil {
		return text
	}
	return v
}

func connectWire(t *testing.T, server *exec.Cmd) wire {
	t.Helper()
	c, err := (&sdk.CommandTransport{Command: server}).Connect(t.Context())
	require.NoError(t, err)
	w := wire{T: t, Connection: c, told: &notices{}}
	t.Cleanup(func() { _ = c.Close() })
	w.hello = w.ask("initialize",
		arguments{"protocolVersion": "2025-11-25", "capabilities": arguments{},
			"clientInfo": arguments{"name": "test", "version": "1"}})
	require.NoError(t, c.Write(t.Context(), &jsonrpc.Request{Method: "notifications/initialized"}))
	return w
}

func (w wire) ask(method string, params arguments) string {
	w.Helper()
	a := w.answer(method, params)
	if a.Error != nil {
		return a.Error.Error()
	}
	return string(a.Result)
}

// answer is what the server has answered to a request.
func (w wire) answer(method string, params arguments) *jsonrpc.Response {
	w.Helper()
	raw, err := json.Marshal(params)
	require.NoError(w, err)
	id, err := jsonrpc.MakeID(method)
	require.NoError(w, err)
	require.NoError(w, w.Write(w.Context(), &jsonrpc.Request{ID: id, Method: method, Params: raw}))
	for {
		switch m := w.read().(type) {
		case *jsonrpc.Request:
			w.told.all = append(w.told.all, *m)
		case *jsonrpc.Response:
			return m
		}
	}
}

func (w wire) read() jsonrpc.Message {
	w.Helper()
	m, err := w.Read(w.Context())
	require.NoError(w, err)
	return m
}

// until waits for a notification.
func (w wire) until(method, params string) {
	w.Helper()
	for !w.told.has(method, params) {
		m, is := w.read().(*jsonrpc.Request)
		require.True(w, is)
		w.told.all = append(w.told.all, *m)
	}
}

func (w wire) call(tool string, in arguments) string {
	w.Helper()
	return w.ask("tools/call", arguments{"name": tool, "arguments": in})
}

func TestAWrappedServerAnswersAsItself(t *testing.T) {
	n := newNotes(t)
	_, other := startNotes(t)
	ours, bare := connectWire(t, n.starter()), connectWire(t, exec.Command("sh", "-c", other))
	require.Len(t, n.ids(), 1)
	before := n.manifest()

	type tools struct{ Tools []map[string]any }
	var all, its tools
	require.NoError(t, json.Unmarshal([]byte(bare.ask("tools/list", nil)), &its))
	require.NoError(t, json.Unmarshal([]byte(ours.ask("tools/list", nil)), &all))
	own, recovery := []any{}, map[any]any{}
	wrapped := tools{}
	for _, each := range all.Tools {
		if strings.HasPrefix(each["name"].(string), "unwind_") {
			own = append(own, each["name"])
			require.NotContains(t, each["inputSchema"].(map[string]any)["properties"], "session")
			continue
		}
		recovery[each["name"]] = each["_meta"].(map[string]any)["unwind/recovery"].(map[string]any)["reversible"]
		delete(each, "_meta")
		wrapped.Tools = append(wrapped.Tools, each)
	}
	require.Equal(t, its, wrapped)
	require.Equal(t,
		[]any{"unwind_abort", "unwind_context", "unwind_finish", "unwind_keep_context", "unwind_note", "unwind_redo",
			"unwind_resolve", "unwind_rollback", "unwind_savepoint", "unwind_status"}, own)
	require.Equal(t, []any{"read-only", "compensated", "none", "none"},
		[]any{recovery["get_note"], recovery["put_note"], recovery["send_mail"], recovery["count_notes"]},
		"a hint is not trusted")

	for _, call := range []struct {
		tool string
		in   arguments
	}{
		{"get_note", arguments{"id": "there"}},
		{"get_note", arguments{"id": "nowhere"}},
		{"get_note", arguments{}},
		{"put_note", arguments{"id": "there", "body": "1 < 2 & ${{ steps.s1.outputs.text }} $${{ x"}},
		{"get_note", arguments{"id": "there"}},
		{"put_note", arguments{"id": "new", "body": "12345678901234567890"}},
		{"delete_note", arguments{"id": "new"}},
	} {
		require.Equal(t, bare.call(call.tool, call.in), ours.call(call.tool, call.in), "%v", call)
	}
	require.NotEqual(t, before, n.manifest())
	require.Contains(t, ours.call("put_note", arguments{"id": 7}), `BadParameter: arguments: `, "and no step")
	var o struct{ StructuredContent mcp.Outcome }
	require.NoError(t, json.Unmarshal([]byte(ours.call("unwind_abort", nil)), &o))
	require.Equal(t, "unwound", o.StructuredContent.Report.Status)
	require.Equal(t, before, n.manifest())
}

func TestTheSessionOfAWrappedServer(t *testing.T) {
	n := newNotes(t)
	a := n.agent(nil)
	first := n.ids()[0]
	require.Equal(t,
		mcp.Outcome{Session: first,
			Next: "nothing has been changed: the session begins with the first call that changes something"},
		a.does("unwind_status", nil))
	a.does("get_note", arguments{"id": "there"})
	_, err := n.client.DescribeWorkflow(t.Context(), first, "")
	require.Error(t, err, "a read opens no session")

	a.does("put_note", arguments{"id": "there", "body": "one"})
	a.does("unwind_savepoint", arguments{"name": "half"})
	half := n.manifest()
	a.does("put_note", arguments{"id": "there", "body": "two"})
	a.does("create_note", arguments{"title": "plan", "body": "three"})
	status := a.does("unwind_status", nil)
	require.Equal(t, []any{first, []string{"half"}, 3}, []any{status.Session, status.Savepoints, len(status.Steps)})
	require.Equal(t, "BadRequest", a.isRefused("unwind_rollback", arguments{"to": "nowhere"}).Type)
	require.Equal(t, mcp.BadParameter, a.isRefused("unwind_rollback", arguments{"to": "half", "session": "other"}).Type)
	a.does("unwind_rollback", arguments{"to": "half"})
	require.Equal(t, half, n.manifest())
	require.Len(t, a.does("unwind_redo", nil).Steps, 2)
	require.Regexp(t, `"title":"plan","body":"three"(?s:.*)"body":"two"`, n.manifest(),
		"the created one has another id now")
	a.does("unwind_rollback", arguments{"to": "half"})
	require.Equal(t, half, n.manifest())
	require.Equal(t, "committed", a.does("unwind_finish", nil).Report.Status)

	a.does("put_note", arguments{"id": "there", "body": "of the next"})
	next := n.ids()[1]
	require.Equal(t, next, a.does("unwind_status", nil).Session)
	n.ok("cancel", next)
	require.NoError(t, waitForEnd(n, next))
	require.Equal(t, half, n.manifest())
	r, err := a.CallTool(t.Context(),
		&sdk.CallToolParams{Name: "put_note", Arguments: arguments{"id": "there", "body": "x"}})
	require.NoError(t, err)
	require.True(t, r.IsError)
	require.Contains(t, textOf(r), "nothing was called: session "+next+" has ended")
	require.Equal(t, half, n.manifest())
	a.does("put_note", arguments{"id": "there", "body": "x"})
	require.Len(t, n.ids(), 3)
}

// waitForEnd ignores how it has ended.
func waitForEnd(n *notes, id string) error {
	_ = n.client.GetWorkflow(n.Context(), id, "").Get(n.Context(), nil)
	_, err := n.client.DescribeWorkflow(n.Context(), id, "")
	return err
}

func textOf(r *sdk.CallToolResult) string { return r.Content[0].(*sdk.TextContent).Text }

func TestAnUndeclaredCallOfAWrappedServerIsAsked(t *testing.T) {
	n := newNotes(t)
	a := n.agent(nil, "--wait", "100ms")
	before := n.manifest()
	mail := func(text string) *sdk.CallToolParams {
		return &sdk.CallToolParams{Name: "send_mail", Arguments: arguments{"text": text}}
	}
	r, err := a.CallTool(t.Context(), mail("hello"))
	require.NoError(t, err)
	require.True(t, r.IsError)
	require.Nil(t, r.StructuredContent, "it would not be what the tool's schema says")
	var o mcp.Outcome
	require.NoError(t, json.Unmarshal([]byte(textOf(r)), &o))
	require.True(t, o.Pending)
	require.Contains(t, o.Next, "ask unwind_status with request")
	require.Equal(t, before, n.manifest())
	n.ok("approve", n.ids()[0], o.Steps[0].ID, "--yes")
	done := a.does("unwind_status", arguments{"request": o.Request})
	require.Equal(t, map[string]any{"text": "hello"}, done.Steps[0].Outputs["data"])
	require.Equal(t, before+"hello\n", n.manifest())
	require.NoError(t, a.Close())

	said := "accept"
	b := n.agent(&sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult,
		error) {
		return &sdk.ElicitResult{Action: said}, nil
	}}, "--elicit", "--wait", "30s")
	r, err = b.CallTool(t.Context(), mail("again"))
	require.NoError(t, err)
	require.False(t, r.IsError, "%s", textOf(r))
	require.Equal(t, map[string]any{"text": "again"}, r.StructuredContent)
	said = "decline"
	r, err = b.CallTool(t.Context(), mail("again"))
	require.NoError(t, err)
	require.True(t, r.IsError)
	require.Contains(t, textOf(r), "was rejected by the user of test")
	require.Equal(t, before+"hello\nagain\n", n.manifest())
}

// What a server says that is no success is passed on, and is not taken for one.
func TestWhatIsNoSuccessOfAWrappedServer(t *testing.T) {
	n := newNotes(t)
	before := n.manifest()
	w := connectWire(t, n.starter("--wait", "100ms"))
	put := arguments{"id": "there", "body": "new"}
	state := func() mcp.Step {
		var o struct{ StructuredContent mcp.Outcome }
		require.NoError(t, json.Unmarshal([]byte(w.call("unwind_status", nil)), &o))
		return o.StructuredContent.Steps[len(o.StructuredContent.Steps)-1]
	}
	n.fault(mcptest.Deny)
	require.JSONEq(t, `{"content":[{"type":"text","text":"it did not work"}],"isError":true}`, w.call("put_note", put))
	require.Equal(t, "rolled-back", state().State)
	require.Equal(t, before, n.manifest(), "it had acted all the same")
	n.fault(mcptest.Lose)
	require.Contains(t, w.call("put_note", put), "the answer of the server was lost")
	require.Equal(t, "done", state().State)
	n.fault(mcptest.Later)
	require.JSONEq(t, `{"task":{"taskId":"t1","status":"working"}}`,
		w.call("put_note", arguments{"id": "late", "body": "x"}))
	late := state()
	require.Contains(t, late.Error, "answered with a task")
	require.NotEqual(t, "done", late.State)
	ended := w.call("unwind_abort", nil)
	require.Contains(t, ended, `"waiting":[{"step":"`+late.ID, "what the task does is not known: a person decides")
	require.Equal(t, late.ID, state().ID, "the session is not over")
}

func TestASessionOutlivesTheClientOfAWrappedServer(t *testing.T) {
	n := newNotes(t)
	before := n.manifest()
	a := n.agent(nil)
	a.does("put_note", arguments{"id": "there", "body": "new"})
	require.NoError(t, a.Close())
	n.agent(nil).does("get_note", arguments{"id": "there"})
	require.NotEqual(t, before, n.manifest())
	n.ok("session", "abort", n.ids()[0])
	require.Equal(t, before, n.manifest())
}

func TestBadInputOfAWrapTouchesNothing(t *testing.T) {
	n := newNotes(t)
	t.Setenv("NOTES_TOKEN", mcptest.Token)
	empty := n.manifest()
	state := os.Getenv("UNWIND_STATE")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "d.yaml")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"no command": {[]string{"--wrap", " "}, "--wrap is empty; give the command line"},
		"no wrap":    {[]string{"--name", "x"}, "--declarations and --name are for --wrap"},
		"a token": {[]string{"--wrap", n.command, "--token", "env:T"},
			"--token is for --listen and for --wrap URL"},
		"a token in clear": {[]string{"--wrap", "http://example.com/mcp", "--token", "env:NOTES_TOKEN"},
			"in the clear; use https"},
		"a bad URL": {[]string{"--wrap", "https:///mcp"}, "--wrap: url: give an address as in https://host/path"},
		"a local URL": {[]string{"--wrap", "https://example.com/mcp", "--declarations", n.declarations},
			"declarations: local: a server that is reached by url"},
		"a port":     {[]string{"--wrap", n.command, "--listen", "127.0.0.1:0"}, "--listen is not for --wrap"},
		"a bad name": {[]string{"--wrap", n.command, "--name", "../x"}, `--name: "../x" must be a name of letters`},
		"no file":    {[]string{"--wrap", n.command, "--declarations", "/nowhere.yaml"}, "--declarations: "},
		"a bad file": {[]string{"--wrap", n.command, "--declarations", file("tools: {put_note: {}}")},
			"tools.put_note: write exactly one of"},
		"a tool not there": {[]string{"--wrap", n.command, "--declarations", file("tools: {put_notes: {reads: true}}")},
			`tools: the server has no tool "put_notes"; it has: count_notes, `},
		"an undo not there": {[]string{"--wrap", n.command, "--declarations",
			file("tools: {put_note: {undo: [{tool: del}]}}")}, `tools.put_note.undo[0].tool: the server has no tool "del"`},
		"a session of none": {[]string{"--wrap", n.command, "--session", write(t, good)}, "is no session: add session: {}"},
	} {
		r := n.do(append([]string{"mcp"}, c.flags...)...)
		require.Equal(t, statusUsage, r.status, "%s: %s", name, r.err)
		require.Contains(t, r.err, c.want, name)
		require.Empty(t, r.out, name)
	}
	dead := n.do("mcp", "--wrap", "exit 3")
	require.Equal(t, statusFailed, dead.status)
	require.Contains(t, dead.err, "--wrap: server server-")
	require.Equal(t, empty, n.manifest())
	left, err := filepath.Glob(filepath.Join(state, "wrap", "*"))
	require.NoError(t, err)
	require.Empty(t, left)

	n.agent(nil, "--name", "one").does("get_note", arguments{"id": "there"})
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	second := do(impatient, n.options(), "mcp", "--wrap", n.command, "--name", "one")
	require.Equal(t, statusUsage, second.status)
	require.Contains(t, second.err, "another `starter mcp --wrap` serves one; use it")
	require.DirExists(t, filepath.Join(state, "wrap", "one"))
}

func TestTheAgentOfAWrappedServerCorrectsACallThatFailed(t *testing.T) {
	n := newNotes(t)
	a := n.agent(nil, "--session", n.file(lettingAgent))
	before := n.manifest()
	n.fault(mcptest.Deny)
	r, err := a.CallTool(t.Context(),
		&sdk.CallToolParams{Name: "put_note", Arguments: arguments{"id": "there", "body": "bad"}})
	require.NoError(t, err)
	require.True(t, r.IsError)
	var failed mcp.Outcome
	require.NoError(t, json.Unmarshal([]byte(textOf(r)), &failed))
	require.Equal(t, before, n.manifest(), "it had acted all the same")
	step := failed.Steps[0]
	require.Contains(t, step.Error, "it did not work")
	require.Contains(t, failed.Next, "call unwind_resolve with its digest, "+string(step.Park.Digest))

	resolve := arguments{"step": step.ID, "digest": step.Park.Digest, "do": "retry",
		"arguments": arguments{"id": "there", "bod": "good"}}
	require.Contains(t, a.isRefused("unwind_resolve", resolve).Text, "bod")
	n.fault("")
	resolve["arguments"] = arguments{"id": "there", "body": "${{ good }}"}
	resolved := a.does("unwind_resolve", resolve)
	require.Equal(t, "done", resolved.Steps[0].State, "%+v", resolved)
	require.Contains(t, n.manifest(), "${{ good }}")
	require.Equal(t, "NothingDecided", a.isRefused("unwind_resolve", resolve).Type)
	require.Equal(t, "unwound", a.does("unwind_abort", nil).Report.Status)
	require.Equal(t, before, n.manifest())
}

// A server that is reached by URL is wrapped like one that is started.
func TestAServerThatIsReachedByURLIsWrapped(t *testing.T) {
	n := newNotes(t)
	served := httptest.NewServer(mcptest.Handler(n.dir, false))
	t.Cleanup(func() { served.CloseClientConnections(); served.Close() })
	t.Setenv("NOTES_TOKEN", mcptest.Token)
	require.NoError(t,
		os.WriteFile(n.declarations, []byte(strings.Replace(mcptest.Declarations, "local: true", "", 1)), 0o600))
	n.command = served.URL
	before := n.manifest()
	a := n.agent(nil, "--token", "env:NOTES_TOKEN", "--wait", "100ms")
	require.Equal(t, "old", a.says("get_note", arguments{"id": "there"})["body"])
	a.says("put_note", arguments{"id": "there", "body": "one"})
	a.does("unwind_savepoint", arguments{"name": "half"})
	half := n.manifest()
	a.says("create_note", arguments{"title": "plan", "body": "two"})
	a.does("unwind_rollback", arguments{"to": "half"})
	require.Equal(t, half, n.manifest())
	mail, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "send_mail", Arguments: arguments{"text": "hello"}})
	require.NoError(t, err)
	require.Contains(t, textOf(mail), `"pending":true`, "what cannot be undone is asked about")
	n.ok("reject", n.ids()[0], "s3", "--why", "not now")
	n.until(n.ids()[0], func(s protocol.State) bool { return s.Steps[2].State == protocol.RolledBack })
	n.fault(mcptest.Lose)
	lost, err := a.CallTool(t.Context(),
		&sdk.CallToolParams{Name: "put_note", Arguments: arguments{"id": "there", "body": "three"}})
	require.NoError(t, err)
	require.Contains(t, textOf(lost), "the answer of the server was lost")
	n.fault("")
	require.Equal(t, "unwound", a.does("unwind_abort", nil).Report.Status)
	require.Equal(t, before, n.manifest())
	require.NotContains(t, n.log.String(), mcptest.Token)

	dead := n.do("mcp", "--wrap", n.command, "--name", "nobody")
	require.Equal(t, statusFailed, dead.status)
	require.Contains(t, dead.err, "--wrap: server nobody: initialize: ")
	require.Contains(t, dead.err, "401 Unauthorized")
}

// says calls a tool of the wrapped server, which must succeed.
func (a agent) says(tool string, in arguments) map[string]any {
	a.Helper()
	r, err := a.CallTool(a.Context(), &sdk.CallToolParams{Name: tool, Arguments: in})
	require.NoError(a, err)
	require.False(a, r.IsError, "%+v", r)
	said, _ := r.StructuredContent.(map[string]any)
	return said
}
