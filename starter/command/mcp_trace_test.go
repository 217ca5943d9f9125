package command

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/mcp"
)

func (a agent) trace(handle string) (trace mcp.Trace) {
	a.Helper()
	r, err := a.ReadResource(a.Context(), &sdk.ReadResourceParams{URI: "unwind://sessions/" + handle + "/trace"})
	require.NoError(a, err)
	require.NoError(a, json.Unmarshal([]byte(r.Contents[0].Text), &trace))
	return trace
}

func TestTheTraceOfASessionTellsWhatHasHappenedInOrder(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil, "--wait", "100ms")
	s := a.open()
	a.does("savepoint", arguments{"session": s, "request": "half", "name": "half"})
	a.does("fake_set", gatedIn(s))
	d.ok("approve", idIn(s), "s1", "--yes", "--why", "it is small")
	a.does("status", arguments{"session": s, "request": "gated"})
	_, isError := a.call("fake_set",
		arguments{"session": s, "request": "bad", "with": map[string]any{"key": "b", "value": "a secret word", "fail": true}})
	require.True(t, isError)
	a.does("rollback", arguments{"session": s, "request": "back", "to": "half", "why": "another way"})
	a.does("finish", arguments{"session": s, "request": "end"})

	trace := a.trace(s)
	var lines []string
	var last time.Time
	for _, e := range trace.Events {
		require.False(t, e.At.Before(last), "%+v", e)
		last = e.At
		lines = append(lines, strings.Join(slices.DeleteFunc([]string{e.What, e.Name, e.Request, e.Step, e.Outcome, e.Text},
			func(s string) bool { return s == "" }), "|"))
	}
	require.Equal(t, "began", lines[0])
	require.Equal(t, "request|open", strings.TrimSuffix(lines[1], "|"+trace.Events[1].Request))
	require.Equal(t, []string{
		"request|savepoint|half|half",
		"request|step|gated",
		"plan|plan|s1",
		`done|plan|s1|set a from "" to "x"`,
		"gate|s1",
		"request|approve|" + trace.Events[7].Request + "|s1|it is small",
		"forward|forward|s1",
		`done|forward|s1|set a to "x"`,
		"request|step|bad",
		"forward|forward|s2",
		"failed|forward|s2|ActionDenied: b was set, but does not work",
		"undo|undo|s2",
		`done|undo|s2|restored|b is "" again`,
		"request|rollback|back|half: another way",
		"undo|undo|s1",
		`done|undo|s1|restored|a is "" again`,
		"request|finish|end",
		"ended|completed",
	}, lines[2:])
	require.NotEmpty(t, trace.Events[7].Who)
	require.NotContains(t, strings.Join(lines, "\n"), "a secret word", "what a step was given is not repeated")
}
