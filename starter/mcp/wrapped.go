package mcp

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
)

// Wrapped is a server that a Proxy sits before: a worker of its own carries its calls out.
type Wrapped interface {
	// Name is what steps call the server.
	Name() string
	// Offers is what it says of itself.
	Offers() Offers
	// Tools are its tools, as it lists them now.
	Tools(ctx context.Context) ([]json.RawMessage, error)
	// Action is the action that calls a tool.
	Action(tool string) activities.Spec
	// Read calls a tool that only reads, without a step. Params are those of the protocol.
	Read(ctx context.Context, tool string, params json.RawMessage) (Reply, error)
	// Ask makes a request that changes nothing, other than the call of a tool.
	Ask(ctx context.Context, method string, params json.RawMessage) (Reply, error)
	// Notices are what it notifies its client of.
	Notices() <-chan Notice
	// ReplyTo is what the server has answered to the call of a step.
	ReplyTo(token string) (r Reply, found bool, err error)
}

// Offers is what a server says of itself.
type Offers struct {
	Capabilities sdk.ServerCapabilities
	Instructions string
}

// Notice is what a server notifies its client of.
type Notice struct {
	Method string
	Params json.RawMessage
	// OfStep says that it reports how far the call of a step has come.
	OfStep bool
}

// Reply is what a server has answered to a call: a result, or an error of the protocol.
type Reply struct {
	Result json.RawMessage
	Error  *jsonrpc.Error
	// Lost means that the call has happened, and that its answer was lost or cannot be kept as it was
	// sent.
	Lost bool
	// Succeeded means that it is no error, and no result that is not complete.
	Succeeded bool
}

// listedTool is what a proxy needs of a tool.
type listedTool struct {
	Name        string                     `json:"name"`
	Meta        map[string]json.RawMessage `json:"_meta"`
	InputSchema json.RawMessage            `json:"inputSchema"`
}

// withRecovery is the tool as its server lists it, and how a call of it is undone.
func (t listedTool) withRecovery(raw json.RawMessage, of recovery) (listed json.RawMessage, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	meta := map[string]json.RawMessage{}
	maps.Copy(meta, t.Meta)
	if meta[recoveryMeta], err = json.Marshal(of); err != nil {
		return nil, err
	}
	if fields["_meta"], err = json.Marshal(meta); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// verbatim is structured content that stands for a whole result, as the wrapped server has sent it.
// The SDK's type would lose what it does not know.
type verbatim json.RawMessage

// whole is a result that is sent as it is.
type whole struct {
	*sdk.CallToolResult

	raw json.RawMessage
}

func (w whole) MarshalJSON() ([]byte, error) { return w.raw, nil }

// listing is a list of tools, with those of the wrapped server as it lists them.
type listing struct {
	*sdk.ListToolsResult

	tools map[string]json.RawMessage
}

func (l listing) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(l.ListToolsResult)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	all := make([]json.RawMessage, len(l.Tools))
	for i, t := range l.Tools {
		if all[i] = l.tools[t.Name]; all[i] != nil {
			continue
		}
		if all[i], err = json.Marshal(t); err != nil {
			return nil, err
		}
	}
	if fields["tools"], err = json.Marshal(all); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// passOn sends what the wrapped server has sent as it is.
func (p *Proxy) passOn(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		if p.isForwarded(method) {
			return p.forward(ctx, method, r)
		}
		result, err := next(ctx, method, r)
		if err != nil {
			return nil, err
		}
		switch made := result.(type) {
		case *sdk.CallToolResult:
			if raw, is := made.StructuredContent.(verbatim); is {
				return whole{made, json.RawMessage(raw)}, nil
			}
		case *sdk.ListToolsResult:
			return listing{made, p.listings()}, nil
		}
		return result, nil
	}
}
