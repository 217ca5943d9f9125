package mcp

import (
	"context"
	"errors"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/api/serviceerror"

	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/session"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Problem is why a call was refused, in a way that an agent can act upon: nothing was touched.
type Problem struct {
	// Type is one of those below, or that of a session's refusal: BadRequest, SessionBusy,
	// SessionOver, SessionPaused, NotASession, PersonDecides, NothingDecided.
	Type string `json:"type" jsonschema:"kind of problem"`
	Text string `json:"text" jsonschema:"what is wrong, and the way out"`
}

func (p Problem) Error() string { return p.Type + ": " + p.Text }

// The types of problems.
const (
	BadParameter   = "BadParameter"   // an argument is missing, unknown or of the wrong kind
	BadHandle      = "BadHandle"      // no server with this key has made the handle
	OtherNamespace = "OtherNamespace" // the handle is for another namespace
	NoServer       = "NoServer"       // Temporal, or a worker, does not answer
	Interrupted    = "Interrupted"    // the outcome is not known: repeat the request
	Failed         = "Failed"         // anything else
)

// explain makes a problem of an error.
func explain(err error) Problem {
	var p Problem
	var refusal session.Refusal
	var wrong usage.Error
	var problems task.Problems
	var away *serviceerror.Unavailable
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &refusal):
		return Problem{refusal.Type, refusal.Text}
	case errors.As(err, &wrong):
		return Problem{BadParameter, err.Error()}
	case errors.As(err, &problems):
		return Problem{BadParameter, problems.WithoutPositions().Error()}
	case errors.As(err, &away):
		return Problem{NoServer, err.Error() + "; repeat the call with the same request"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Problem{Interrupted, "the call was broken off; repeat it with the same request to learn what became of it"}
	}
	return Problem{Failed, err.Error()}
}

// failed is the result of a call that was refused.
func failed(err error) *sdk.CallToolResult {
	p := explain(err)
	return &sdk.CallToolResult{
		IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: p.Error()}}, StructuredContent: Outcome{Error: &p},
	}
}
