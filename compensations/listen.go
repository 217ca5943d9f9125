package compensations

import (
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations/inbox"
)

// Listen passes every SignalResolve of the workflow to Resolve as it arrives, even if the workflow
// is canceled. A signal that decides nothing, even an unreadable one, is in the Notes of the saga's
// reports with the reason. Carry handles the signals that are still there, so that none is lost if
// the workflow returns right after it.
func (s *Saga) Listen(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	s.inbox.Open(ctx, inbox.Handler{Signal: SignalResolve, Handle: s.handleResolution})
	workflow.GoNamed(ctx, SignalResolve, func(ctx workflow.Context) {
		for {
			_ = workflow.Await(ctx, s.inbox.HasSignals)
			s.inbox.HandleSignals()
			s.options.Changed() // signals that decided nothing are shown too
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
