package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

type keepContextInput struct {
	onSession
	Content   string `json:"content" jsonschema:"what you must know to go on from here, such as a summary of the conversation: about a megabyte at most"`
	Name      string `json:"name,omitempty" jsonschema:"what it is, in a few words. It is visible in the history, the content is not"`
	Savepoint string `json:"savepoint,omitempty" jsonschema:"also marks this place, as savepoint does: rollback then returns the digest, and context with this name the content"`
}

type contextInput struct {
	ofSession
	Savepoint string `json:"savepoint,omitempty" jsonschema:"the one that was kept with this savepoint. Defaults to the last one of what was not undone"`
	Branch    string `json:"branch,omitempty" jsonschema:"the last one that was kept in this branch; instead of savepoint"`
}

func (s *Server) addContextTools() {
	addTool(s, keepContextTool(), s.keepContext)
	addTool(s, contextTool(), s.context)
}

func keepContextTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "keep_context", Title: "Keep what you know",
		Description: "Keeps a text of yours for the present place of the session, so that you, or whoever takes over " +
			"from you, can go on from here: see context.",
		Annotations: changes(additive, notIdempotent),
	}
}

func contextTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "context", Title: "Where you stand",
		Description: "Returns the text that keep_context kept last, and the steps that were done since. With savepoint " +
			"or branch: what was kept there.",
		Annotations: reads(),
	}
}

// Context is what an agent has given to its session.
type Context struct {
	Name      string `json:"name,omitempty"`
	Savepoint string `json:"savepoint,omitempty"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
	Content   string `json:"content,omitempty"`
	// Since are the steps that were done since.
	Since []string `json:"since,omitempty"`
}

func contextOf(c *protocol.Context) *Context {
	if c == nil {
		return nil
	}
	return &Context{Name: c.Name, Savepoint: c.Savepoint, Digest: string(c.Digest), Size: c.Size}
}

func (s *Server) keepContext(ctx context.Context, call *sdk.CallToolRequest, in keepContextInput) (Outcome, error) {
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			if in.Savepoint != "" {
				return of.SavepointWith(ctx, request, in.Savepoint, []byte(in.Content))
			}
			return of.KeepContext(ctx, request, in.Name, []byte(in.Content))
		})
}

func (s *Server) context(ctx context.Context, _ *sdk.CallToolRequest, in contextInput) (Outcome, error) {
	client, id, err := s.find(ctx, in.Session)
	if err != nil {
		return Outcome{}, err
	}
	of := session.Attach(client, id)
	var c protocol.Context
	var content []byte
	var since []string
	switch {
	case in.Savepoint != "" && in.Branch != "":
		err = Problem{BadParameter, "give savepoint or branch, and not both"}
	case in.Savepoint != "":
		c, content, err = of.ContextOf(ctx, in.Savepoint)
	case in.Branch != "":
		c, content, err = of.ContextOfBranch(ctx, in.Branch)
	default:
		c, content, since, err = of.LastContext(ctx)
	}
	if err != nil {
		return Outcome{}, err
	}
	told := contextOf(&c)
	told.Content, told.Since = string(content), since
	return Outcome{Context: told}, nil
}
