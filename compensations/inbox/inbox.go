// Package inbox receives the signals of a workflow so that none is lost or silently dropped.
//
// The SDK drops a signal whose payload cannot be decoded, leaving only a log line. And a blocked
// Receive has taken a signal before its coroutine runs: a run that ends at that moment loses it. An
// Inbox therefore receives raw payloads, never blocks on a channel, and keeps the reason why a
// signal decided nothing.
package inbox

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// Bounds on what signals can put into a history and a report.
const (
	maxIgnored = 50
	maxReason  = 1000
)

// Handler handles the signals of one name.
type Handler struct {
	Signal string
	// Handle acts on a payload and does not yield. An error says why the signal decided nothing.
	Handle func(payload []byte) error
}

// Inbox holds the signals of one workflow. The zero value receives none. All calls come from that
// workflow's coroutines.
type Inbox struct {
	mailboxes []mailbox
	ignored   Ignored
}

type mailbox struct {
	Handler

	channel workflow.ReceiveChannel
}

// Open begins to receive. If several signals are there at once, those of an earlier handler are
// handled first.
func (b *Inbox) Open(ctx workflow.Context, handlers ...Handler) {
	for _, h := range handlers {
		b.mailboxes = append(b.mailboxes, mailbox{h, workflow.GetSignalChannel(ctx, h.Signal)})
	}
}

// HasSignals reports whether a signal waits to be handled. It serves as the condition of a
// workflow.Await.
func (b *Inbox) HasSignals() bool {
	for _, m := range b.mailboxes {
		if m.channel.Len() > 0 {
			return true
		}
	}
	return false
}

// HandleSignals handles every signal that is there. It does not yield: a run that ends right after
// it loses none.
func (b *Inbox) HandleSignals() {
	for _, m := range b.mailboxes {
		for {
			var raw converter.RawValue // a new one each time: a signal without a payload leaves it as it was
			if !m.channel.ReceiveAsync(&raw) {
				break
			}
			if err := m.Handle(raw.Payload().GetData()); err != nil {
				b.Ignore(m.Signal, err)
			}
		}
	}
}

// Ignored returns the signals that have decided nothing so far.
func (b *Inbox) Ignored() Ignored { return b.ignored }

// Ignore notes that a signal has decided nothing, where that took longer to find out.
func (b *Inbox) Ignore(signal string, why error) {
	b.ignored.addReason(fmt.Sprintf("%s: %v", signal, why))
}

// Restore sets what earlier runs of the chain have ignored.
func (b *Inbox) Restore(ignored Ignored) { b.ignored = ignored }

// Ignored are signals that decided nothing.
type Ignored struct {
	// Reasons names the first ones, each with why it decided nothing; More counts the rest.
	Reasons []string `json:"reasons,omitempty"`
	More    int      `json:"more,omitempty"`
}

func (i *Ignored) addReason(reason string) {
	if len(i.Reasons) >= maxIgnored {
		i.More++
		return
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	i.Reasons = append(i.Reasons, reason)
}

// Notes returns i as notes of a report.
func (i Ignored) Notes() []string {
	var notes []string
	for _, reason := range i.Reasons {
		notes = append(notes, "ignored signal: "+reason)
	}
	if i.More > 0 {
		notes = append(notes, fmt.Sprintf("and %d more ignored signals", i.More))
	}
	return notes
}
