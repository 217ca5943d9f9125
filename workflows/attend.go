package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// signal is one of those that a task takes, and what becomes of its payload.
type signal struct {
	name  string
	queue workflow.ReceiveChannel
	take  func(raw []byte) error
}

// attend takes every signal of the task as it comes, and writes the current details when they are stale. It is one coroutine
// for all of that: each one that waits is woken several times for each step. It waits beside the channels: a selector that
// waits at one has taken a signal before it runs, and a run that ends in that moment would lose it.
func (t *agentTask) attend(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	t.signals = []signal{ // of those that come together, a rejection first: gates fail closed
		{name: SignalReject, take: func(raw []byte) error { return t.decide(raw, false) }},
		{name: SignalApprove, take: func(raw []byte) error { return t.decide(raw, true) }},
		{name: compensations.SignalResolve, take: t.resolve},
	}
	for i := range t.signals {
		t.signals[i].queue = workflow.GetSignalChannel(ctx, t.signals[i].name)
	}
	workflow.GoNamed(ctx, "attendant", func(ctx workflow.Context) {
		for {
			_ = workflow.Await(ctx, func() bool { return t.stale || t.signaled() })
			t.takeSignals()
			t.writeDetails(ctx)
		}
	})
}

func (t *agentTask) signaled() bool {
	for _, s := range t.signals {
		if s.queue.Len() > 0 {
			return true
		}
	}
	return false
}

// takeSignals takes the signals that are there. It does not yield. What decides nothing is kept and shown, never dropped: an
// unreadable payload too, which is why the payloads are received raw.
func (t *agentTask) takeSignals() {
	for _, s := range t.signals {
		for {
			var raw converter.RawValue // of its own: a signal without a payload leaves it as it was
			if !s.queue.ReceiveAsync(&raw) {
				break
			}
			if err := s.take(raw.Payload().GetData()); err != nil {
				t.ignore(fmt.Sprintf("%s: %v", s.name, err))
			}
		}
	}
}
