package recovery

import (
	"cmp"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Nobody is asked twice: decisions about the parks of a dead run still hold. The run announced each
// park by an alert, with the digest that a resolution must carry. A resolution counts only for the
// park with this digest, and only until that park ended; any other decided nothing then and decides
// nothing now. If thousands were parked at once, an alert may follow the resolution.

// maxParks bounds the search for the number of the park that an alert announced.
const maxParks = 100

// parks tracks the parks of a run while its history is read.
type parks struct {
	known *reading
	open  map[string]park
	last  map[string]activities.Undone // the result of the last undo, by token
	early []compensations.Resolution   // resolutions that fit no park announced so far
}

type park struct {
	entry    activities.Entry
	progress compensations.Progress
}

// proofs are the decisions of a run that a worker was asked to verify, by the event that asked. Where
// only signed decisions count, those that were proved are the ones that have decided.
type proofs map[int64]protocol.SignedDecision

// addProved applies the decision about an undo that an activity has proved.
func (p *parks) addProved(asked proofs, completed *historypb.ActivityTaskCompletedEventAttributes,
	dc converter.DataConverter) {
	d, isProof := asked[completed.GetScheduledEventId()]
	var proof protocol.Proof
	if !isProof || dc.FromPayloads(completed.Result, &proof) != nil || proof.Key == "" {
		return
	}
	r := d.Resolution()
	r.Key = proof.Key
	p.apply(r)
}

// applyDecisions applies what people decided about the entries in a run to their progress.
func (l ledgerReader) applyDecisions(k *reading, events []*historypb.HistoryEvent, trace activities.Trace) error {
	k.Progress = compensations.KeepForced(k.Progress, trace)
	p := parks{known: k, open: map[string]park{}, last: map[string]activities.Undone{}}
	if k.Progress == nil {
		k.Progress = map[string]compensations.Progress{}
	}
	for _, e := range k.Entries {
		if progress, ok := k.Progress[e.Token]; ok && isForPerson(progress.State) {
			p.open[e.Step] = park{e, progress}
			p.last[e.Token] = progress.Undone
		}
	}
	attempts, asked := trace.Attempts, proofs{}
	for _, event := range events {
		for len(attempts) > 0 && attempts[0].Event <= event.EventId {
			p.addAttempt(attempts[0])
			attempts = attempts[1:]
		}
		scheduled, signal := event.GetActivityTaskScheduledEventAttributes(),
			event.GetWorkflowExecutionSignaledEventAttributes()
		update := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput()
		switch {
		case scheduled.GetActivityType().GetName() == protocol.AlertActivity:
			var alerts []protocol.Alert
			if err := l.dc.FromPayloads(scheduled.Input, &alerts); err != nil {
				return fmt.Errorf("event %d, an alert: %w", event.EventId, err)
			}
			for _, alert := range alerts {
				p.addAlert(alert)
			}
		case scheduled.GetActivityType().GetName() == protocol.VerifyActivity:
			var d protocol.SignedDecision
			if err := l.dc.FromPayloads(scheduled.Input, &d); err != nil {
				return fmt.Errorf("event %d, a decision to be verified: %w", event.EventId, err)
			}
			asked[event.EventId] = d
		case event.GetActivityTaskCompletedEventAttributes() != nil:
			p.addProved(asked, event.GetActivityTaskCompletedEventAttributes(), l.dc)
		case signal.GetSignalName() == compensations.SignalResolve:
			p.addResolution(l.dc, signal.Input)
		case update.GetName() == protocol.UpdateResolve:
			p.addResolution(l.dc, update.GetArgs())
		}
	}
	for token, progress := range k.Progress { // what nobody has decided is undone again, and parked again if need be
		if isForPerson(progress.State) {
			if progress.State == compensations.Parked { // the decision about an earlier park has been carried out
				progress.Decision, progress.Reset = activities.Decision{}, false
			}
			progress.State = compensations.Pending
			k.Progress[token] = progress
		}
	}
	return nil
}

func isForPerson(s compensations.UndoState) bool {
	return s == compensations.Parked || s == compensations.Waiting
}

// addAttempt records the end of an undo. It ends the park of its entry, unless no worker took it.
func (p *parks) addAttempt(a activities.Attempt) {
	if a.Unserved {
		return
	}
	_, isShown := p.last[a.Token]
	switch {
	case a.Undone != nil:
		p.last[a.Token] = *a.Undone
	case a.Unproved && isShown: // what was shown is shown again, to be signed
	case !a.Canceled: // a canceled undo has found out nothing
		p.last[a.Token] = activities.Undone{Outcome: activities.Failed}
	}
	if a.Unproved {
		progress := p.known.Progress[a.Token]
		progress.State, progress.Signed = cmp.Or(progress.State, compensations.Pending), true
		p.known.Progress[a.Token] = progress
	}
	for step, open := range p.open {
		if open.entry.Token == a.Token {
			delete(p.open, step)
		}
	}
}

// addAlert opens the park that an alert announced.
func (p *parks) addAlert(alert protocol.Alert) {
	if !isForPerson(alert.State) {
		return // it is about a gate, say
	}
	delete(p.open, alert.Step)
	for _, e := range p.known.Entries {
		if e.Step != alert.Step {
			continue
		}
		progress := p.known.Progress[e.Token]
		progress.State, progress.Reason, progress.Shown = alert.State, alert.Reason, ""
		for _, progress.Undone = range []activities.Undone{p.last[e.Token], {Outcome: activities.Failed}} {
			for progress.Parks = range maxParks {
				if progress.Digest(e) == alert.Digest {
					p.open[e.Step], p.known.Progress[e.Token] = park{e, progress}, progress
					p.applyEarly(alert)
					return
				}
			}
		}
	}
}

// addResolution applies the payload of a signal or an update to the open park that it fits.
func (p *parks) addResolution(dc converter.DataConverter, input *commonpb.Payloads) {
	var raw converter.RawValue
	if dc.FromPayloads(input, &raw) != nil {
		return
	}
	if r, err := compensations.ParseResolution(raw.Payload().GetData()); err == nil {
		r.Task = p.known.workflow // as the run itself has filled in
		p.apply(r)
	}
}

// applyEarly applies a resolution that came before the alert about its park.
func (p *parks) applyEarly(alert protocol.Alert) {
	for _, r := range p.early {
		if r.Step == alert.Step && r.Digest == alert.Digest {
			p.apply(r)
		}
	}
}

func (p *parks) apply(r compensations.Resolution) {
	open, ok := p.open[r.Step]
	if !ok {
		p.early = append(p.early, r)
		return
	}
	if (open.entry.Place.Signed || open.progress.Signed) && r.Key == "" {
		return // it was not proved
	}
	progress, err := open.progress.Resolve(open.entry, r)
	if err != nil {
		return // as the run has found too
	}
	p.known.Progress[open.entry.Token] = progress
	delete(p.open, r.Step)
}
