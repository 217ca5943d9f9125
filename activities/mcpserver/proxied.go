package mcpserver

import (
	"context"
	"encoding/json"
)

// Tools are the tools of a server, as it lists them.
func (w World) Tools(ctx context.Context, server string) ([]json.RawMessage, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return nil, err
	}
	return c.listed, nil
}

// Read calls a tool that only reads, without a step.
func (w World) Read(ctx context.Context, server, tool string, arguments json.RawMessage) (Answer, error) {
	c, err := w.shared.connect(ctx, server)
	if err != nil {
		return Answer{}, err
	}
	if err := w.shared.checkClass(c, reads, server, tool); err != nil {
		return Answer{}, err
	}
	return c.call(ctx, "", tool, arguments)
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
