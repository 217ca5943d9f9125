package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// hostile is a world with a server that sends what no client wants.
type hostile struct {
	*store

	folder string
}

func newHostile(t *testing.T, seed string) hostile {
	t.Helper()
	h := hostile{folder: t.TempDir()}
	command, env, err := mcptest.StartHostile(h.folder)
	require.NoError(t, err)
	declared, err := mcpserver.ParseDeclarations([]byte(mcptest.HostileDeclarations))
	require.NoError(t, err)
	h.write("seed", seed)
	h.store = newStoreWith(t, func(c *mcpserver.Config) {
		c.Servers["hostile"] = mcpserver.Server{Command: command, Env: env, Declarations: declared}
	})
	return h
}

// write replaces a file of the server.
func (h hostile) write(name, content string) {
	if content != "" {
		if err := os.WriteFile(filepath.Join(h.folder, name), []byte(content), 0o600); err != nil {
			panic(err)
		}
	}
}

// list has the server list its tools otherwise, and say so.
func (h hostile) list(how string) {
	h.Helper()
	h.write("listing", how)
	_, err := h.call("mcp.read", "get", nil).apply()
	require.NoError(h, err)
}

func (h hostile) kept() string {
	raw, err := os.ReadFile(filepath.Join(h.folder, "kept"))
	require.NoError(h, err)
	return string(raw)
}

func (h hostile) call(action, tool string, arguments params) step {
	h.Helper()
	return h.stepOf("hostile", action, tool, arguments)
}

func TestAListOfToolsHasAnEnd(t *testing.T) {
	for listing, want := range map[string]string{
		mcptest.Endless: "the list has more pages than 1000",
		mcptest.Circle:  "after page 2 is an earlier one, so that the list has no end",
		mcptest.Long:    "the list is longer than 2097152 bytes",
		mcptest.None:    "its answer is no list of tools",
		mcptest.Deep:    `tools[0].inputSchema.a.a`,
	} {
		t.Run(listing, func(t *testing.T) {
			h := newHostile(t, "")
			h.write("listing", listing)
			_, err := h.call("mcp.call.irreversible", "act", nil).apply()
			require.ErrorContains(t, err, "server hostile: tools/list: ")
			require.ErrorContains(t, err, want)
		})
	}
}

func TestAToolThatIsListedTwiceIsNotCalled(t *testing.T) {
	h := newHostile(t, "")
	h.write("listing", mcptest.Renamed)
	for _, action := range []string{"mcp.read", "mcp.call.irreversible"} {
		_, err := h.call(action, "act", nil).apply()
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, `tool: server hostile lists "act" more than once, and not the same each time`)
	}
	_, err := h.call("mcp.read", "get", nil).apply()
	require.NoError(t, err, "the others are")
	h.list(mcptest.Same)
	_, err = h.call("mcp.call.irreversible", "act", nil).apply()
	require.NoError(t, err)
}

// A person has approved the call of a tool as it was listed then.
func TestAnApprovalIsVoidWhenTheToolIsListedOtherwise(t *testing.T) {
	h := newHostile(t, "")
	act := h.call("mcp.call.irreversible", "act", nil)
	planned, err := act.action.Plan(t.Context(), act.entry, act.step)
	require.NoError(t, err)
	h.list(`{"name":"another","inputSchema":{"type":"object"}}`)
	again, err := act.action.Plan(t.Context(), act.entry, act.step)
	require.NoError(t, err)
	require.Equal(t, planned.Digest, again.Digest, "another tool is not what was approved")

	h.list(mcptest.Other)
	_, err = act.action.Apply(t.Context(), act.entry, act.step, planned.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v", err)
}

// What is kept of an answer is what the server has sent, or the answer is refused with the field:
// nothing else is put back.
func TestWhatIsPutBackIsWhatWasThere(t *testing.T) {
	for was, refused := range map[string]string{
		`"\ud83d\ude00 \u0000 \u202e & < \u2028"`:           "",
		`[9007199254740993, -0, 1e400, 1.10, -1E-400, 1e2]`: "",
		`{"a":{"A":1,"a":2},"":[[],{}]}`:                    "",
		`"\ud800"`:                                          `structuredContent.value: a string has \ud800 without the other half`,
		`{"a":["x","\udc00\ud800"]}`:                        `structuredContent.value.a[1]: a string has \udc00`,
		"\"\xff\"":                                          `structuredContent.value: a string is not valid UTF-8`,
		`{"a":1,"a":2}`:                                     `structuredContent.value.a: the object has two fields of this name`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200): `it is nested deeper than 100`,
		`[` + strings.Repeat("0,", 150_000) + `0]`:          `it has more values than 100000`,
	} {
		t.Run(was[:min(len(was), 20)], func(t *testing.T) {
			h := newHostile(t, "")
			h.write("kept", was)
			put := h.call("mcp.call", "put", params{"value": "new"})
			_, err := put.apply()
			if refused != "" {
				require.ErrorContains(t, err, "before put: get: its answer cannot be kept as the server has sent it: ")
				require.ErrorContains(t, err, refused)
				require.Equal(t, was, h.kept(), "nothing was called")
				return
			}
			require.NoError(t, err)
			require.Equal(t, `"new"`, h.kept())
			require.Equal(t, activities.Restored, put.undo().Outcome)
			require.Equal(t, decodedExactly(t, was), decodedExactly(t, h.kept()))
		})
	}
}

func decodedExactly(t *testing.T, text string) (v any) {
	t.Helper()
	require.NoError(t, exactjson.Decode([]byte(text), &v))
	return v
}

func TestArgumentsArriveAsTheyWereGiven(t *testing.T) {
	h := newHostile(t, "")
	for _, value := range []string{`[9007199254740993, -0, 1e400, 1.10]`, `"\u0000\ud83d\ude00"`, `{"a":{"A":1}}`} {
		_, err := h.call("mcp.call", "put", params{"value": json.RawMessage(value)}).apply()
		require.NoError(t, err)
		require.Equal(t, decodedExactly(t, value), decodedExactly(t, h.kept()))
	}
	before := h.kept()
	for value, want := range map[string]string{`"\ud800"`: `arguments.value: a string has \ud800`,
		`{"b":1,"b":2}`: `arguments.value.b: the object has two fields`} {
		put := h.call("mcp.call", "put", nil)
		put.step.With = json.RawMessage(`{"server":"hostile","tool":"put","arguments":{"value":` + value + `}}`)
		_, err := put.apply()
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, before, h.kept())
}

// A call was made, and what it has answered cannot be kept: it is not taken for a failure that
// changes nothing.
func TestAnAnswerThatCannotBeKept(t *testing.T) {
	h := newHostile(t, "")
	h.write("answer", `{"content":[],"structuredContent":{"id":"\ud800"}}`)
	act := h.call("mcp.call.irreversible", "act", nil)
	_, err := act.apply()
	require.Equal(t, activities.UnknownOutcome, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err,
		`act of server hostile: its answer cannot be kept as the server has sent it: structuredContent.id: a string has \ud800`)
	undone := act.undo()
	require.Equal(t, activities.Unknown, undone.Outcome)
	require.Contains(t, undone.Observed, "cannot be kept as the server has sent it: structuredContent.id")
	h.list(`{"name":"act2","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	_, err = h.call("mcp.read", "act2", nil).apply()
	require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
}

// hostileVariable says how long the world is tried by a hostile server; a plain run is short.
const hostileVariable = "UNWIND_TEST_HOSTILE_FOR"

func TestAHostileServerIsSurvived(t *testing.T) {
	lasts := 3 * time.Second
	if long, err := time.ParseDuration(os.Getenv(hostileVariable)); err == nil {
		lasts = long
	}
	h := newHostile(t, "1")
	var n, answered int
	for until := time.Now().Add(lasts); time.Now().Before(until) || answered == 0; n++ {
		answered += h.tryAll()
	}
	t.Logf("%d calls, %d answers, peak of memory: %s", 3*n, answered, peakOfMemory(t))
}

// patience is how long one call is waited for.
const patience = 300 * time.Millisecond

// tryAll does all that can be done to a server, and counts what it has answered.
func (h hostile) tryAll() (answered int) {
	act, get, put := h.call("mcp.call.irreversible", "act", nil), h.call("mcp.read", "get", nil),
		h.call("mcp.call", "put", params{"value": "new"})
	for _, each := range []step{act, get, put} {
		ctx, cancel := context.WithTimeout(h.Context(), patience)
		_, err := each.action.Apply(ctx, each.entry, each.step, "")
		cancel()
		if err == nil {
			answered++
		}
		ctx, cancel = context.WithTimeout(h.Context(), patience)
		undone, err := each.action.Undo(ctx, each.entry, activities.Decision{})
		cancel()
		if err == nil && undone.Outcome == activities.Restored {
			require.Equal(h, `"old"`, h.kept())
		}
		h.write("kept", `"old"`)
	}
	return answered
}

// peakOfMemory is how much this process has held at most.
func peakOfMemory(t *testing.T) string {
	raw, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		if rest, is := bytes.CutPrefix(line, []byte("VmHWM:")); is {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}
