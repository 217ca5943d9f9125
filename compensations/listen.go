package compensations

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// maxIgnored is how many signals that decided nothing are told.
const maxIgnored = 50

// Listen takes every SignalResolve of the workflow as it comes, for Resolve, also when the workflow is canceled. What decides
// nothing is kept, with the reason, in the Notes of the saga's reports: an unreadable payload too. Carry takes those that are
// there in the last moment, so that none is lost where the workflow returns with no yield after it.
func (s *Saga) Listen(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	s.signals = workflow.GetSignalChannel(ctx, SignalResolve)
	workflow.GoNamed(ctx, SignalResolve, func(ctx workflow.Context) {
		for {
			// Beside the channel: a Receive that waits has taken a signal before it runs, and a run that ends then would lose it.
			_ = workflow.Await(ctx, func() bool { return s.signals.Len() > 0 })
			s.takeSignals()
		}
	})
}

// takeSignals takes the signals that are there. It does not yield.
func (s *Saga) takeSignals() {
	for s.signals != nil {
		// Raw, for the SDK drops what does not decode, with a log line only; of its own, for a signal without a payload leaves it
		// as it was.
		var raw converter.RawValue
		if !s.signals.ReceiveAsync(&raw) {
			return
		}
		r, err := ParseResolution(raw.Payload().GetData())
		if err == nil {
			err = s.Resolve(r)
		}
		if err != nil {
			s.ignore(err)
		}
	}
}

func (s *Saga) ignore(why error) {
	note := clip(fmt.Sprintf("ignored signal: %s: %v", SignalResolve, why), maxWhy)
	switch len(s.ignored) {
	case maxIgnored + 1:
		return
	case maxIgnored:
		note = "and more ignored signals"
	}
	s.ignored = append(s.ignored, note)
	s.options.Changed()
}
