package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

type redoInput struct {
	onSession
	Branch string `json:"branch,omitempty" jsonschema:"branch to choose. Roll back first what was done since its savepoint"`
	To     string `json:"to,omitempty" jsonschema:"savepoint of the rollback to redo. Defaults to the last rollback that was not redone"`
	Step   string `json:"step,omitempty" jsonschema:"step of the rollback to redo; instead of to"`
	Why    string `json:"why,omitempty" jsonschema:"reason, kept in the report"`
}

func redoTool() *sdk.Tool {
	return &sdk.Tool{
		Name: "redo", Title: "Do again what was rolled back",
		Description: "Runs the steps that a rollback has undone once more, under their ids: they are checked and " +
			"approved anew, and return new outputs. " +
			"Without branch, to and step, those of the last rollback that was not redone.",
		Annotations: changes(destructive, notIdempotent),
	}
}

func (s *Server) redo(ctx context.Context, call *sdk.CallToolRequest, in redoInput) (Outcome, error) {
	return s.ask(ctx, call, in.onSession,
		func(ctx context.Context, of session.Session, request string) (protocol.Answer, error) {
			return of.Redo(ctx, request, protocol.SessionRedo{Branch: in.Branch, To: in.To, Step: in.Step, Why: in.Why})
		})
}
