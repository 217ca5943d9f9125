package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// What a server has besides tools only reads, so a proxy passes it on: requests to the server as
// they come, and its answers and notifications as far as the SDK's types hold them.

// options are those of a proxy before a server: it offers what that server does.
func (p *Proxy) options() sdk.ServerOptions {
	theirs := p.wrapped.Offers()
	o := sdk.ServerOptions{Instructions: strings.TrimSpace(proxyInstructions + "\n\n" + theirs.Instructions),
		Capabilities: offerTasks(&sdk.ServerCapabilities{
			Resources: theirs.Capabilities.Resources, Prompts: theirs.Capabilities.Prompts,
			Completions: theirs.Capabilities.Completions, Logging: theirs.Capabilities.Logging,
		})}
	if r := theirs.Capabilities.Resources; r != nil && r.Subscribe {
		o.SubscribeHandler = func(ctx context.Context, r *sdk.SubscribeRequest) error {
			return p.tellWrapped(ctx, "resources/subscribe", &sdk.SubscribeParams{URI: r.Params.URI})
		}
		o.UnsubscribeHandler = func(ctx context.Context, r *sdk.UnsubscribeRequest) error {
			return p.tellWrapped(ctx, "resources/unsubscribe", &sdk.UnsubscribeParams{URI: r.Params.URI})
		}
	}
	return o
}

// isForwarded reports whether a request is the wrapped server's to answer. The SDK answers for what
// that server does not have.
func (p *Proxy) isForwarded(method string) bool {
	theirs := p.wrapped.Offers().Capabilities
	switch method {
	case "resources/list", "resources/templates/list", "resources/read":
		return theirs.Resources != nil
	case "prompts/list", "prompts/get":
		return theirs.Prompts != nil
	case "completion/complete":
		return theirs.Completions != nil
	case "logging/setLevel":
		return theirs.Logging != nil
	}
	return false
}

// passed is a result that is sent as the wrapped server has sent it.
type passed struct {
	sdk.ResultBase

	raw json.RawMessage
}

func (p *passed) MarshalJSON() ([]byte, error) { return p.raw, nil }

// forward passes a request on.
func (p *Proxy) forward(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
	params, err := paramsOf(r)
	if err != nil {
		return nil, err
	}
	reply, err := p.wrapped.Ask(ctx, method, params)
	if err != nil {
		return nil, explain(err)
	}
	if reply.Error != nil {
		return nil, reply.Error
	}
	return &passed{raw: reply.Result}, nil
}

// tellWrapped makes a request whose answer says nothing.
func (p *Proxy) tellWrapped(ctx context.Context, method string, params sdk.Params) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	reply, err := p.wrapped.Ask(ctx, method, raw)
	if err == nil && reply.Error != nil {
		return reply.Error
	}
	return err
}

// protocolMeta begins the names by which a request says how it is to be understood. That is agreed
// upon with each side for itself.
const protocolMeta = "io.modelcontextprotocol/"

// paramsOf are the parameters of a request, for the wrapped server.
func paramsOf(r sdk.Request) (json.RawMessage, error) {
	raw, err := json.Marshal(r.GetParams())
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := exactjson.Decode(raw, &fields); err != nil {
		return nil, err
	}
	if meta, is := fields["_meta"].(map[string]any); is {
		maps.DeleteFunc(meta, func(name string, _ any) bool { return strings.HasPrefix(name, protocolMeta) })
		if len(meta) == 0 {
			delete(fields, "_meta")
		}
	}
	if fields == nil {
		fields = map[string]any{}
	}
	return json.Marshal(fields)
}

// Run serves one client, and passes on to it what the wrapped server notifies it of, until it
// leaves or ctx ends.
func (p *Proxy) Run(ctx context.Context, t sdk.Transport) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case n := <-p.wrapped.Notices():
				if err := p.pass(ctx, n); err != nil {
					fmt.Fprintf(p.log, "%s of server %s: %v\n", n.Method, p.wrapped.Name(), err)
				}
			}
		}
	}()
	return p.Server.Run(ctx, t)
}

// pass passes a notification on.
func (p *Proxy) pass(ctx context.Context, n Notice) error {
	switch n.Method {
	case "notifications/tools/list_changed":
		return p.takeTools(ctx)
	case "notifications/resources/list_changed":
		// The SDK tells of a change of its own list, which nobody sees: the wrapped server answers in its
		// place.
		p.server.AddResource(&sdk.Resource{Name: "changed", URI: "unwind://changed"}, nil)
	case "notifications/prompts/list_changed":
		p.server.AddPrompt(&sdk.Prompt{Name: "changed"}, nil)
	case "notifications/resources/updated":
		var params sdk.ResourceUpdatedNotificationParams
		if err := json.Unmarshal(n.Params, &params); err != nil {
			return err
		}
		return p.server.ResourceUpdated(ctx, &params)
	case "notifications/message":
		var params sdk.LoggingMessageParams
		if err := json.Unmarshal(n.Params, &params); err != nil {
			return err
		}
		return p.passLog(ctx, n.Method, &params)
	case "notifications/progress":
		var params sdk.ProgressNotificationParams
		if err := json.Unmarshal(n.Params, &params); err != nil {
			return err
		}
		return p.passProgress(ctx, n.OfStep, &params)
	}
	return nil
}

// sinceLogPerRequest is the protocol that has no log of a session.
const sinceLogPerRequest = "2026-07-28"

// passLog passes on what the wrapped server logs. That server knows the level: the SDK's own way
// drops all before one is set.
func (p *Proxy) passLog(ctx context.Context, method string, params *sdk.LoggingMessageParams) (err error) {
	for of := range p.server.Sessions() {
		if init := of.InitializeParams(); init != nil && init.ProtocolVersion < sinceLogPerRequest {
			_, err = p.notify(ctx, method, &sdk.ServerRequest[*sdk.LoggingMessageParams]{Session: of, Params: params})
		}
	}
	return err
}

// passProgress passes on how far a call has come. Where several steps are called at once, it is not
// known whose it is.
func (p *Proxy) passProgress(ctx context.Context, ofStep bool, params *sdk.ProgressNotificationParams) (err error) {
	if !ofStep { // the token is the client's own
		for of := range p.server.Sessions() {
			err = of.NotifyProgress(ctx, params)
		}
		return err
	}
	p.toldMu.Lock()
	defer p.toldMu.Unlock()
	if len(p.told) != 1 {
		return nil
	}
	for _, each := range p.told {
		select {
		case each <- params:
		default: // the client does not read so fast
		}
	}
	return nil
}

// listenTo takes in what is reported of a step's call, until it is stopped.
func (p *Proxy) listenTo(call *sdk.CallToolRequest) (stop func()) {
	p.toldMu.Lock()
	defer p.toldMu.Unlock()
	p.told[call] = make(chan *sdk.ProgressNotificationParams, 16)
	return func() {
		p.toldMu.Lock()
		defer p.toldMu.Unlock()
		delete(p.told, call)
	}
}

func (p *Proxy) channelOf(call *sdk.CallToolRequest) <-chan *sdk.ProgressNotificationParams {
	p.toldMu.Lock()
	defer p.toldMu.Unlock()
	return p.told[call]
}
