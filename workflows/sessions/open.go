package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// openSession answers when the session takes steps.
var openSession = verb{protocol.UpdateOpen, func(t *session) (handle, validate any) {
	handle = func(ctx workflow.Context) (protocol.Answer, error) {
		return t.serve(ctx, nil, t.checkTakes, func(workflow.Context, *request) error { return nil })
	}
	return handle, func(workflow.Context) error { return t.checkTakes() }
}}
