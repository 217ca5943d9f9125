package command

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// isStarter, if it is set in its environment, makes the test program a starter.
const isStarter = "STARTER_TEST_IS_STARTER"

// actAsStarter never returns in such a process. Its starter knows the fake world.
func actAsStarter() {
	if os.Getenv(isStarter) != "" {
		os.Exit(Main(Options{Worlds: []activities.World{newFakeWorld().world()}}))
	}
}

// agent is a client of the protocol whose server is a starter of its own.
type agent struct {
	*desk
	*sdk.ClientSession
}

// newAgent starts a starter mcp, and connects to it.
func (d *desk) newAgent(o *sdk.ClientOptions, flags ...string) agent {
	d.Helper()
	return d.newAgentOf("", o, flags...)
}

// newAgentOf does so with a version of the protocol.
func (d *desk) newAgentOf(protocol string, o *sdk.ClientOptions, flags ...string) agent {
	d.Helper()
	return d.connectAgent(d.starterMCP(flags...), protocol, o)
}

// starterMCP is a starter mcp that is not started yet.
func (d *desk) starterMCP(flags ...string) sdk.Transport {
	return &sdk.CommandTransport{Command: d.commandMCP(flags...)}
}

func (d *desk) commandMCP(flags ...string) *exec.Cmd {
	starter := exec.Command(os.Args[0], append([]string{"mcp"}, flags...)...)
	starter.Env = append(os.Environ(), isStarter+"=1", "UNWIND_QUEUE="+d.queue)
	starter.Stderr = d.Output()
	return starter
}

func (d *desk) connectAgent(to sdk.Transport, protocol string, o *sdk.ClientOptions) agent {
	d.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(d.Context(), to,
		&sdk.ClientSessionOptions{ProtocolVersion: protocol})
	require.NoError(d, err)
	d.Cleanup(func() { _ = c.Close() })
	return agent{d, c}
}

type arguments map[string]any

// call calls a tool.
func (a agent) call(tool string, in arguments) (o mcp.Outcome, isError bool) {
	a.Helper()
	r, err := a.CallTool(a.Context(), &sdk.CallToolParams{Name: tool, Arguments: in})
	require.NoError(a, err)
	return outcomeIn(a, r), r.IsError
}

func outcomeIn(t require.TestingT, r *sdk.CallToolResult) (o mcp.Outcome) {
	raw, err := json.Marshal(r.StructuredContent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &o))
	return o
}

// does calls a tool that must do what it was asked for.
func (a agent) does(tool string, in arguments) mcp.Outcome {
	a.Helper()
	o, isError := a.call(tool, in)
	require.False(a, isError, "%+v", o)
	return o
}

// isRefused calls a tool that must refuse.
func (a agent) isRefused(tool string, in arguments) mcp.Problem {
	a.Helper()
	o, isError := a.call(tool, in)
	require.True(a, isError, "%+v", o)
	require.NotNil(a, o.Error, "%+v", o)
	return *o.Error
}

func (a agent) open() string { a.Helper(); return a.does("open", arguments{"name": a.Name()}).Session }

func set(key, value string) map[string]any { return map[string]any{"key": key, "value": value} }

func TestAnAgentWorksInASession(t *testing.T) {
	a := newDesk(t).newAgent(nil)
	s := a.open()
	done := a.does("fake_set", arguments{"session": s, "request": "one", "with": set("a", "x")})
	require.Equal(t, "x", a.world.get("a"))
	require.Equal(t, []any{"s1", "done", map[string]any{"before": ""}},
		[]any{done.Steps[0].ID, done.Steps[0].State, done.Steps[0].Outputs})

	a.world.set("a", "of somebody else")
	again := a.does("fake_set", arguments{"session": s, "request": "one", "with": set("a", "x")})
	require.Equal(t, done, again, "the same request is the same step")
	require.Equal(t, "of somebody else", a.world.get("a"))
	require.Equal(t, "BadRequest",
		a.isRefused("fake_set", arguments{"session": s, "request": "one", "with": set("a", "y")}).Type)
	a.world.set("a", "x")

	a.does("savepoint", arguments{"session": s, "name": "half"})
	a.does("steps", arguments{"session": s, "steps": []any{
		map[string]any{"uses": "fake.set", "with": set("a", "y")},
		map[string]any{"id": "last", "uses": "fake.set", "with": set("b", "z")},
	}})
	failed, isError := a.call("fake_set",
		arguments{"session": s, "with": map[string]any{"key": "c", "value": "x", "fail": true}})
	require.True(t, isError)
	require.Equal(t, "rolled-back", failed.Steps[0].State)
	require.Equal(t, "restored", failed.Steps[0].Undone.Outcome)
	require.Contains(t, failed.Steps[0].Error, "does not work")
	require.Equal(t, []string{"y", "z", ""}, []string{a.world.get("a"), a.world.get("b"), a.world.get("c")})

	diff := a.does("diff", arguments{"session": s})
	require.Equal(t, []string{`set a to "x"`, `set a to "y"`, `set b to "z"`}, summaries(diff))
	require.Equal(t, map[string]any{"before": ""},
		a.does("diff", arguments{"session": s, "step": "last"}).Steps[0].Outputs)
	plan := a.does("plan", arguments{"steps": []any{map[string]any{"uses": "fake.set", "with": set("b", "w")}}})
	require.Equal(t, "-z\n+w\n", plan.Steps[0].Plan.Diff)
	require.Equal(t, "z", a.world.get("b"))

	back := a.does("rollback", arguments{"session": s, "to": "half"})
	require.Equal(t, []string{"x", ""}, []string{a.world.get("a"), a.world.get("b")})
	require.Len(t, back.Undone, 2)
	require.Equal(t, []string{`set a to "x"`}, summaries(a.does("diff", arguments{"session": s})))
	require.Equal(t, []string{"half"}, a.does("status", arguments{"session": s}).Savepoints)

	end := a.does("finish", arguments{"session": s, "request": "end"})
	require.Equal(t, "committed", end.Report.Status)
	require.Equal(t, end, a.does("finish", arguments{"session": s, "request": "end"}), "also after the end")
	require.Equal(t, "committed", a.does("status", arguments{"session": s, "request": "one"}).Report.Status)
	require.Equal(t, "SessionOver", a.isRefused("fake_set", arguments{"session": s, "with": set("a", "y")}).Type)
	require.Equal(t, "closed", a.does("status", arguments{"session": s}).Phase)
	require.Equal(t, "x", a.world.get("a"))

	var shown protocol.State
	require.NoError(t, json.Unmarshal([]byte(a.ok("show", idIn(s), "-o", "json")), &shown))
	states := map[string]protocol.StepState{}
	for _, v := range shown.Steps {
		states[v.ID] = v.State
	}
	require.Equal(t, map[string]protocol.StepState{
		"s1": protocol.Done, back.Undone[0].Step: protocol.RolledBack, back.Undone[1].Step: protocol.RolledBack,
		failed.Steps[0].ID: protocol.RolledBack,
	}, states)
}

func summaries(o mcp.Outcome) (all []string) {
	for _, s := range o.Steps {
		all = append(all, s.Summary)
	}
	return all
}

func TestWhatAnAgentDoesWrongIsExplained(t *testing.T) {
	a := newDesk(t).newAgent(nil)
	s := a.open()
	id, _, _ := strings.Cut(s, "@")
	persons := []any{map[string]any{"uses": "fake.set", "with": set("a", "x"), "gate": "none"}}
	for name, c := range map[string]struct {
		tool string
		in   arguments
		kind string
		text string
	}{
		"no session":       {"fake_set", arguments{"with": set("a", "x")}, mcp.BadParameter, "session"},
		"unknown argument": {"fake_set", arguments{"session": s, "wit": set("a", "x")}, mcp.BadParameter, "wit"},
		"unknown parameter": {"fake_set", arguments{"session": s, "with": map[string]any{"kee": "a", "value": "x"}},
			"BadRequest", "did you mean key?"},
		"unknown action": {"steps", arguments{"session": s, "steps": []any{map[string]any{"uses": "fake.sett"}}},
			"BadRequest", "did you mean fake.set?"},
		"the id alone": {"status", arguments{"session": id}, mcp.BadHandle, "handle"},
		"a guessed handle": {"status", arguments{"session": id + "@default." + strings.Repeat("a", 26)}, mcp.BadHandle,
			"not made here"},
		"a changed id":          {"status", arguments{"session": "x" + s}, mcp.BadHandle, "not made here"},
		"a savepoint not there": {"rollback", arguments{"session": s, "to": "nowhere"}, "BadRequest", "nowhere"},
		"two ways back":         {"rollback", arguments{"session": s, "to": "a", "step": "b"}, mcp.BadParameter, "not both"},
		"an unknown step":       {"diff", arguments{"session": s, "step": "s9"}, mcp.BadParameter, "s9"},
		"a step for a person": {"steps", arguments{"session": s, "steps": persons}, "BadRequest",
			"steps[0].gate: an agent may only say ask"},
		"a plan of such": {"plan", arguments{"steps": persons}, mcp.BadParameter,
			"steps[0].gate: an agent may only say ask"},
		"a wrong plan": {"plan", arguments{"steps": []any{map[string]any{"uses": "fake.sett"}}}, mcp.BadParameter,
			"did you mean fake.set?"},
	} {
		p := a.isRefused(c.tool, c.in)
		require.Equal(t, c.kind, p.Type, "%s: %s", name, p.Text)
		require.Contains(t, p.Text, c.text, name)
	}
	_, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "fake.set", Arguments: arguments{"session": s}})
	require.ErrorContains(t, err, `the tool of this action is called "fake_set"`)
	_, err = a.CallTool(t.Context(), &sdk.CallToolParams{Name: "fly", Arguments: arguments{}})
	require.ErrorContains(t, err, "there are: abort,")
	require.Empty(t, a.world.get("a"))
	require.Equal(t, "unwound", a.does("abort", arguments{"session": s}).Report.Status)
	require.Equal(t, "SessionOver", a.isRefused("abort", arguments{"session": s}).Type)
}

func TestAHandleIsForItsNamespaceAndKey(t *testing.T) {
	d := newLoneDesk(t)
	a := d.newAgent(nil)
	s := a.open()
	key := d.folder + "/key"
	require.Equal(t, mcp.BadHandle, d.newAgent(nil, "--key", key).isRefused("status", arguments{"session": s}).Type)

	shared, err := mcp.ReadKey(key)
	require.NoError(t, err)
	t.Setenv("TEMPORAL_NAMESPACE", "temporal-system")
	other := d.newAgent(nil).isRefused("status", arguments{"session": s})
	require.Equal(t, mcp.OtherNamespace, other.Type)
	require.Contains(t, other.Text, `namespace "default"`)
	again, err := mcp.ReadKey(key)
	require.NoError(t, err)
	require.Equal(t, shared, again)
}

func TestTwoClientsShareASession(t *testing.T) {
	d := newDesk(t)
	a, b := d.newAgent(nil), d.newAgent(nil)
	in := arguments{"name": t.Name(), "request": "opened by this test"}
	s := a.does("open", in).Session
	require.Equal(t, s, b.does("open", in).Session, "an open that is repeated, on another connection")
	in["name"] = "something else"
	require.NotEqual(t, s, b.does("open", in).Session)

	a.does("fake_set", arguments{"session": s, "with": set("a", "x")})
	b.does("fake_set", arguments{"session": s, "with": set("b", "y")})
	require.Equal(t, []string{`set a to "x"`, `set b to "y"`}, summaries(a.does("diff", arguments{"session": s})))
	b.does("rollback", arguments{"session": s, "step": "s2"})
	require.Empty(t, d.world.get("b"))
	require.Equal(t, mcp.BadParameter, a.isRefused("redo", arguments{"session": s, "of": "s2"}).Type)
	require.Equal(t, "BadRequest", a.isRefused("redo", arguments{"session": s, "step": "s3"}).Type)
	require.Equal(t, 2, a.does("redo", arguments{"session": s, "step": "s2"}).Steps[0].Try)
	require.Equal(t, "y", d.world.get("b"))
	a.does("keep_context", arguments{"session": s, "savepoint": "known", "content": "what I know"})
	a.does("fake_set", arguments{"session": s, "id": "more", "with": set("b", "z")})
	require.Equal(t, &mcp.Context{
		Name: "known", Savepoint: "known", Digest: "sha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte("what I know"))),
		Size: 11, Content: "what I know", Since: []string{"more"},
	}, b.does("context", arguments{"session": s}).Context, "another agent takes over")
	require.Equal(t, 11, a.does("rollback", arguments{"session": s, "to": "known"}).Context.Size)
	a.does("keep_context", arguments{"session": s, "name": "later", "content": "more"})
	require.Equal(t, "more", b.does("context", arguments{"session": s}).Context.Content)
	require.Equal(t, "what I know", b.does("context", arguments{"session": s, "savepoint": "known"}).Context.Content)
	require.Equal(t, "BadRequest", b.isRefused("context", arguments{"session": s, "savepoint": "other"}).Type)

	a.does("fake_set", arguments{"session": s, "id": "other", "with": set("b", "w")})
	a.does("rollback", arguments{"session": s, "to": "known", "branch": "first", "score": 0.4, "note": "a guess"})
	branches := b.does("status", arguments{"session": s}).Branches
	require.Equal(t, []mcp.Branch{{
		Name: "first", Savepoint: "known", Score: new(0.4), Note: "a guess", Steps: []string{"other"},
		Context: &mcp.Context{Name: "later", Digest: "sha256:" + fmt.Sprintf("%x", sha256.Sum256([]byte("more"))), Size: 4},
	}}, branches)
	require.Equal(t, "more", b.does("context", arguments{"session": s, "branch": "first"}).Context.Content)
	require.Equal(t, mcp.BadParameter,
		b.isRefused("context", arguments{"session": s, "branch": "first", "savepoint": "known"}).Type)
	require.Equal(t, mcp.BadParameter, b.isRefused("rollback", arguments{"session": s, "to": "known", "score": 1}).Type)
	require.Equal(t, "BadRequest", b.isRefused("redo", arguments{"session": s, "branch": "second"}).Type)
	b.does("note", arguments{"session": s, "text": "the first after all"})
	require.Equal(t, 4, b.does("redo", arguments{"session": s, "branch": "first"}).Context.Size)
	require.Equal(t, "w", d.world.get("b"))
	require.Equal(t, []string{"the agent noted after step s2: the first after all"},
		b.does("abort", arguments{"session": s, "why": "it was a try"}).Report.Notes)
	require.Equal(t, []string{"", ""}, []string{d.world.get("a"), d.world.get("b")})
	require.Contains(t, a.isRefused("fake_set", arguments{"session": s, "with": set("a", "x")}).Text, "it has ended")
}

func TestACallThatWasBrokenOffIsRepeated(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil)
	s := a.open()
	wait := arguments{"session": s, "request": "w", "id": "wait"}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-d.world.waiting
		leave()
	}()
	_, err := a.CallTool(ctx, &sdk.CallToolParams{Name: "fake_wait", Arguments: wait})
	require.Error(t, err)

	b := d.newAgent(nil)
	ended := make(chan mcp.Outcome)
	go func() {
		o, _ := b.call("fake_wait", wait)
		ended <- o
	}()
	require.Equal(t, "SessionBusy", b.isRefused("finish", arguments{"session": s}).Type)
	a.does("rollback", arguments{"session": s, "step": "wait"})
	require.Equal(t, "rolled-back", (<-ended).Steps[0].State)
	require.Empty(t, d.world.waiting, "it was begun once")
}

func TestToolsSayWhatTheyDo(t *testing.T) {
	a := newDesk(t).newAgent(nil)
	listed, err := a.ListTools(t.Context(), nil)
	require.NoError(t, err)
	tools := map[string]*sdk.Tool{}
	for _, tool := range listed.Tools {
		require.Regexp(t, "^[a-z_]{1,64}$", tool.Name)
		tools[tool.Name] = tool
	}
	set := tools["fake_set"]
	require.Equal(t, `Sets a value in memory. Undo: puts the old value back. Outputs: before, what the value was.`,
		set.Description)
	require.True(t, *set.Annotations.DestructiveHint)
	require.Equal(t,
		map[string]any{"reversible": "restored", "tool": "rollback", "handle": "step", "undo": "puts the old value back"},
		set.Meta["unwind/recovery"])
	schema, err := json.Marshal(set.InputSchema)
	require.NoError(t, err)
	require.Contains(t, string(schema), `"key"`)
	require.False(t, *tools["fake_wait"].Annotations.DestructiveHint, "it touches nothing that was there")
	for _, reads := range []string{"status", "diff", "plan", "sqlite_query"} {
		require.True(t, tools[reads].Annotations.ReadOnlyHint, reads)
	}
	require.Equal(t, "none", tools["stripe_refund_create"].Meta["unwind/recovery"].(map[string]any)["reversible"])
}
