package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/starter/usage"
)

// wrappedTool is a tool of the wrapped server.
type wrappedTool struct {
	// listed is the tool as its server lists it, and how a call of it is undone.
	listed json.RawMessage
	// schema is that of the arguments, if a call is a step; nil if it is not, or if we do not
	// understand it.
	schema *jsonschema.Resolved
	call   sdk.ToolHandler
}

// tool returns a tool of the wrapped server.
func (p *Proxy) tool(name string) wrappedTool {
	p.toolsMu.Lock()
	defer p.toolsMu.Unlock()
	return p.theirs[name]
}

// listings are the tools of the wrapped server, as they are listed.
func (p *Proxy) listings() map[string]json.RawMessage {
	p.toolsMu.Lock()
	defer p.toolsMu.Unlock()
	all := map[string]json.RawMessage{}
	for name, t := range p.theirs {
		all[name] = t.listed
	}
	return all
}

// takeTools offers the tools that the wrapped server has now. The error says which cannot be
// offered.
func (p *Proxy) takeTools(ctx context.Context) error {
	all, err := p.wrapped.Tools(ctx)
	if err != nil {
		return err
	}
	now := map[string]wrappedTool{}
	var problems []error
	for _, raw := range all {
		name, tool, err := p.readTool(raw)
		switch _, isTwice := now[name]; {
		case err != nil:
			problems = append(problems, err)
		case isTwice || slices.Contains(p.own, name):
			problems = append(problems,
				usage.Errorf("server %s has a tool %s, which is the name of one of Unwind's own, or of another of that server",
					p.wrapped.Name(), name))
		default:
			now[name] = tool
		}
	}
	p.toolsMu.Lock()
	before := p.theirs
	p.theirs = now
	p.toolsMu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := now[name]; !stays {
			p.tools.set(name, false)
			p.server.RemoveTools(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !bytes.Equal(before[name].listed, now[name].listed) {
			p.tools.set(name, true)
			p.server.AddTool(&sdk.Tool{Name: name, InputSchema: schemaOf[struct{}]()}, now[name].call)
		}
	}
	return errors.Join(problems...)
}

// readTool reads a tool of the wrapped server.
func (p *Proxy) readTool(raw json.RawMessage) (name string, made wrappedTool, err error) {
	var tool listedTool
	if err := json.Unmarshal(raw, &tool); err != nil {
		return "", made, fmt.Errorf("server %s lists a tool that cannot be read: %w", p.wrapped.Name(), err)
	}
	spec := p.wrapped.Action(tool.Name)
	if made.listed, err = tool.withRecovery(raw, recoveryOf(spec, ownPrefix)); err != nil {
		return "", made, err
	}
	call := p.read
	if !spec.ReadOnly {
		made.schema, call = tool.schema(), p.step
	}
	made.call = func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if given := r.Params.Arguments; len(given) == 0 || string(given) == "null" {
			r.Params.Arguments = json.RawMessage("{}")
		}
		return call(ctx, r)
	}
	return tool.Name, made, nil
}

// schema is that of a tool's arguments, against which they are checked first: a step, and what it
// looks at, would take longer to fail. One that we do not understand is for the wrapped server to
// check.
func (t listedTool) schema() *jsonschema.Resolved {
	var schema jsonschema.Schema
	if json.Unmarshal(t.InputSchema, &schema) != nil {
		return nil
	}
	checked, err := schema.Resolve(nil)
	if err != nil {
		return nil
	}
	return checked
}

// read passes a call on.
func (p *Proxy) read(ctx context.Context, call *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	params, err := paramsOf(call)
	if err != nil {
		return nil, err
	}
	reply, err := p.wrapped.Read(ctx, call.Params.Name, params)
	if err != nil {
		return bare(failed(err)), nil
	}
	return reply.result()
}
