package compensations

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations/inbox"
)

// Listen takes every SignalResolve of the workflow as it comes, for Resolve, also when the workflow is canceled. What decides
// nothing, an unreadable payload too, stands with the reason in the Notes of the saga's reports. Carry takes the signals of the
// last moment, so that none is lost where the workflow returns right after it.
func (s *Saga) Listen(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	s.inbox.Open(ctx, inbox.Handler{Signal: SignalResolve, Handle: s.handleResolution})
	workflow.GoNamed(ctx, SignalResolve, func(ctx workflow.Context) {
		for {
			_ = workflow.Await(ctx, s.inbox.HasSignals)
			s.inbox.HandleSignals()
			s.options.Changed() // what decided nothing is shown as well
		}
	})
}

func (s *Saga) handleResolution(payload []byte) error {
	r, err := ParseResolution(payload)
	if err != nil {
		return err
	}
	return s.Resolve(r)
}
