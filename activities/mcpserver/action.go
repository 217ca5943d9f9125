package mcpserver

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

type params struct {
	Server    string         `json:"server"              jsonschema:"name of a server in the worker's config"`
	Tool      string         `json:"tool"                jsonschema:"name of the tool"`
	Arguments map[string]any `json:"arguments,omitempty" jsonschema:"arguments of the tool"`
}

// undoParams are the params that the entry holds.
type undoParams struct {
	Server    string `json:"server"`
	Tool      string `json:"tool"`
	Arguments any    `json:"arguments,omitempty"` // their digest
}

// action is a call of a class of tools.
type action struct {
	*world

	class class
}

func (w *world) actions() []activities.Action {
	return []activities.Action{&readAction{w}, &action{w, reversible}, &action{w, irreversible}}
}

var outputs = map[string]string{
	"text": "text of the result",
	"data": "structured content of the result, or its text if that is JSON",
}

func (a *action) Spec() activities.Spec {
	s := activities.Spec{
		Name: string(a.class), Summary: "Calls a tool of an MCP server whose undo is declared.",
		Params: activities.ParamsSchema[params](), Outputs: outputs,
		UndoParams: []string{"server", "tool", "arguments"}, Digested: []string{"arguments"},
		Keys: []activities.Key{{Prefix: "mcp:", Param: "server"}}, MayChange: []string{""}, HostBound: true,
		Risk: activities.Low, Strategy: activities.Compensation,
		Undo: "The declared inverse is called; what the declared look sees before and after it says what came back.",
	}
	if a.class == irreversible {
		s.Summary, s.Risk, s.Strategy = "Calls a tool of an MCP server that cannot be undone.", activities.High,
			activities.Irreversible
		s.Undo = "no inverse is declared for the tool."
	}
	return s
}

// oneCall is one call of an action, for one token.
type oneCall struct {
	*action

	token  *journal.Token
	entry  activities.Entry
	params undoParams
}

func (a *action) begin(e activities.Entry) (*oneCall, error) {
	if err := a.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return nil, err
	}
	t, err := a.journal.Token(e.Token)
	return &oneCall{a, t, e, p}, err
}

// reach reports the point after a side effect.
func (a *action) reach(what string) { point.Reach(string(a.class) + ":" + what) }

// claim is a document that names the server to which a call is written. Nothing is written to
// another one under it.
type claim struct {
	By serverProcess `json:"by"`
}

// prepared is a call that is ready: all that its undo needs of the world.
type prepared struct {
	declared.Call

	connection *connection
	server     string
	listed     listedTool
}

// prepare looks at what the call of a step would change, and chooses its inverse.
func (a *action) prepare(ctx context.Context, token string, s activities.Step) (*prepared, error) {
	if activities.HoldsSecret(ctx, s.With) {
		return nil, activities.Errorf(activities.Refused,
			"arguments: they hold a secret, which the journal would keep; give it to the server in its environment")
	}
	p, err := decodeCall(s)
	if err != nil {
		return nil, err
	}
	c, err := a.connect(ctx, p.Server)
	if err != nil {
		return nil, err
	}
	listed, err := a.checkClass(ctx, c, a.class, p.Server, p.Tool)
	if err != nil {
		return nil, err
	}
	it := &prepared{declared.Call{Tool: p.Tool, Arguments: p.Arguments,
		Declared: a.Servers[p.Server].Declarations.Tools[p.Tool]}, c, p.Server, listed}
	if l := it.Declared.Look; l != nil && !l.IsOfResult() {
		seen, err := c.look(ctx, token, *l, it.Values(nil))
		if err != nil {
			return nil, fmt.Errorf("before %s: %w", p.Tool, err)
		}
		it.Before = &seen
	}
	if a.class == irreversible || it.ChooseInverse() {
		return it, nil
	}
	return nil, activities.Errorf(activities.Refused,
		"tool: no undo of %s of server %s is declared for this case (undo[].when), so it was not called; declare one in "+
			"the worker's config, "+
			"or make the call a step of a task file that uses %s", p.Tool, p.Server, irreversible)
}

// decodeCall reads the call of a step, with numbers as they are written. It refuses checks that no
// call can have.
func decodeCall(s activities.Step) (p params, err error) {
	for i, check := range s.Checks {
		if check.When == activities.Staged {
			return p, activities.Errorf(activities.Refused,
				"check[%d]: when: staged; a call of a tool cannot be looked at before it is made: use live", i)
		}
	}
	if _, err := exactjson.Check(s.With); err != nil {
		return p, activities.Errorf(activities.Refused, "parameters: %v", err)
	}
	if p, err = activities.DecodeParams[params](s.With); err != nil {
		return p, err
	}
	if p.Arguments == nil {
		p.Arguments = map[string]any{}
	}
	return p, nil
}

// look reads what the call of a token changes.
func (c *connection) look(ctx context.Context, token string, l declared.Look, v declared.Values) (seen declared.Sight,
	err error) {
	arguments, err := v.Fill(l.With)
	if err != nil {
		return seen, fmt.Errorf("look: %w", err)
	}
	a, err := c.call(ctx, token, l.Tool, arguments)
	if err != nil {
		return seen, err
	}
	return l.See(a.read())
}

// change describes a call that is ready.
func (it *prepared) change() activities.Change {
	change := it.Change([]byte(it.server), it.listed.raw) // what the server says of the tool is approved too
	change.Summary, change.Keys = fmt.Sprintf("call %s of server %s", it.Tool, it.server), []string{"mcp:" + it.server}
	return change
}

// Plan looks, and leaves nothing.
func (a *action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	if err := a.journal.Check(e.Place.Journal); err != nil {
		return activities.Change{}, err
	}
	it, err := a.prepare(ctx, e.Token, s)
	if err != nil {
		return activities.Change{}, err
	}
	return it.change(), nil
}
