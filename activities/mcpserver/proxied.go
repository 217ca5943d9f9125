package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Offers is what a server has said of itself.
type Offers struct {
	// Capabilities are those of the protocol.
	Capabilities json.RawMessage `json:"capabilities"`
	Instructions string          `json:"instructions"`
}

// Notice is what a server notifies its client of.
type Notice struct {
	Method string
	Params json.RawMessage
}

// ToolsChanged is the method of a Notice after which Tools are others.
const ToolsChanged = "notifications/tools/list_changed"

// stepPrefix begins the progress token of the call of a step.
const stepPrefix = "unwind-step-"

// IsOfStep reports whether a progress token is that of the call of a step.
func IsOfStep(progressToken string) bool { return strings.HasPrefix(progressToken, stepPrefix) }

// callStep makes the call of a step. Where somebody listens, the server is asked to tell how far it
// has come.
func (c *connection) callStep(ctx context.Context, token, tool string, arguments any) (Answer, error) {
	params := map[string]any{"name": tool, "arguments": arguments}
	if c.heard != nil {
		params["_meta"] = map[string]any{"progressToken": stepPrefix + token}
	}
	a, err := c.callWith(ctx, token, tool, params)
	if unfit, is := errors.AsType[unfitError](err); is { // the call was made: what it did is looked at
		return Answer{Unfit: unfit.Error()}, nil
	}
	return a, err
}

// Tools are the tools of a server, as it lists them now.
func (w World) Tools(ctx context.Context, server string) ([]json.RawMessage, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	all, err := c.catalogNow(ctx)
	return all.listed, err
}

// Offers is what a server says of itself.
func (w World) Offers(ctx context.Context, server string) (Offers, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return Offers{}, err
	}
	return c.offers, nil
}

// boundAnswer bounds the answer to a client that sets no limit itself.
func boundAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("the server has not answered within %v", answerWithin))
}

// Read calls a tool that only reads, without a step. Params are those of the protocol.
func (w World) Read(ctx context.Context, server, tool string, params json.RawMessage) (Answer, error) {
	ctx, cancel := boundAnswer(ctx)
	defer cancel()
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return Answer{}, err
	}
	if _, err := w.shared.checkClass(ctx, c, reads, server, tool); err != nil {
		return Answer{}, err
	}
	return c.callWith(ctx, "", tool, params)
}

// Ask makes a request other than the call of a tool: none of them changes anything but what the
// server tells its client.
func (w World) Ask(ctx context.Context, server, method string, params json.RawMessage) (Answer, error) {
	if method == "tools/call" {
		return Answer{}, fmt.Errorf("%s is a step, or a read", method)
	}
	ctx, cancel := boundAnswer(ctx)
	defer cancel()
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.send(ctx, method, params)
	if _, isUnfit := errors.AsType[unfitError](err); isUnfit {
		return Answer{}, fmt.Errorf("%s: %w", method, err)
	} else if err != nil {
		return a, fmt.Errorf("%s: no answer: %w", method, err)
	}
	if a.Error == nil {
		w.shared.standing.keep(method, params)
	}
	return a, nil
}

// AnswerTo is the answer to the call of a step, as the server has sent it.
func (w World) AnswerTo(token string) (a Answer, found bool, err error) {
	t, err := w.shared.journal.Token(token)
	if err != nil {
		return a, false, err
	}
	found, err = t.Read(answered, &a)
	return a, found, err
}

// standing are requests that hold until the server ends: one that is started again is asked them
// again.
type standing struct {
	mu  sync.Mutex
	all map[string]request // by what they are about
}

type request struct {
	method string
	params json.RawMessage
}

func (s *standing) keep(method string, params json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]request{}
	}
	var about struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(params, &about) // the server has accepted it
	switch method {
	case "logging/setLevel", "resources/subscribe":
		s.all[about.URI] = request{method, params}
	case "resources/unsubscribe":
		delete(s.all, about.URI)
	}
}

// repeat asks a server that was started again. One that refuses tells its client less.
func (s *standing) repeat(ctx context.Context, c *connection) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, r := range all {
		_, _ = c.send(ctx, r.method, r.params)
	}
}
