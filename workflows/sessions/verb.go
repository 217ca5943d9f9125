package sessions

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// verb is one update of a session. What validate refuses leaves no trace in the history.
type verb struct {
	update string
	bind   func(t *session) (handle, validate any)
}

// ask is a verb with an argument.
type ask[R any] struct {
	// check says whether the session can take the request, before it is accepted and again before it
	// is carried out.
	check func(t *session, r R) error
	// inspect looks at what the request says, once, before it is accepted; nil if there is nothing to
	// look at.
	inspect func(t *session, r R) error
	// carryOut does what is asked.
	carryOut func(t *session, ctx workflow.Context, q *request, r R) error
}

// as returns the verb of an update.
func (a ask[R]) as(update string) verb {
	return verb{update, func(t *session) (handle, validate any) {
		handle = func(ctx workflow.Context, r R) (protocol.Answer, error) {
			return t.serve(ctx, r, func() error { return a.check(t, r) },
				func(ctx workflow.Context, q *request) error { return a.carryOut(t, ctx, q, r) })
		}
		return handle, func(ctx workflow.Context, r R) error {
			isKnown, err := t.checkRequest(ctx, r)
			if isKnown || err != nil {
				return err
			}
			if err := a.check(t, r); err != nil || a.inspect == nil {
				return err
			}
			return a.inspect(t, r)
		}
	}}
}
