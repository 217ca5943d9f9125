package compensations

import (
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// UndoState is where an entry stands while the ledger unwinds.
type UndoState string

// The states. Settled, Accepted and Skipped are ends; Skipped alone holds back what it needs.
const (
	Registered UndoState = "registered" // the task is going forward
	Pending    UndoState = "pending"    // to be undone when its turn comes
	Running    UndoState = "undoing"    // its undo is scheduled
	Waiting    UndoState = "waiting"    // no worker serves its place: its undo goes on by itself when one is back
	Parked     UndoState = "parked"     // a person must resolve it
	Settled    UndoState = "settled"    // undone, with an outcome
	Accepted   UndoState = "accepted"   // a person takes the world as it is
	Skipped    UndoState = "skipped"    // a person leaves it as it is, and what it needs waits on
)

// item is an entry in an unwinding.
type item struct {
	entry    activities.Entry
	state    UndoState
	undone   activities.Undone
	decision activities.Decision // a person's word for the next undo
	reason   string              // why it waits or is parked
	parks    int                 // how often it was parked: part of a park's digest
	alone    bool                // undo it although a skipped step needs it
	forced   int                 // how often its drift policy has overwritten drift
	cancel   func()              // ends the undo that is scheduled
	notes    []string
}

// plan is the pure part of an unwinding: what may be undone now, and what holds back what. It knows no Temporal.
type plan struct {
	items []*item
	// dependents are the items that need an item, by its step.
	dependents map[string][]*item
}

func newPlan(entries []activities.Entry) *plan {
	p := &plan{dependents: map[string][]*item{}}
	for _, e := range entries {
		it := &item{entry: e, state: Pending}
		p.items = append(p.items, it)
		for _, need := range e.Needs {
			p.dependents[need] = append(p.dependents[need], it)
		}
	}
	return p
}

// next is the newest entry that may be undone now; nil where none may. Where one undo waits for a worker, no other one is
// sent.
func (p *plan) next() *item {
	waits := map[string]bool{}
	for _, it := range p.items {
		if it.state == Waiting {
			waits[it.entry.Place.Queue] = true
		}
	}
	for _, it := range slices.Backward(p.items) {
		if it.state == Pending && !waits[it.entry.Place.Queue] && p.free(it) {
			return it
		}
	}
	return nil
}

// free holds when everything that needs it is out of its way.
func (p *plan) free(it *item) bool {
	for _, d := range p.dependents[it.entry.Step] {
		switch {
		case d.state == Settled || d.state == Accepted:
		case d.state == Skipped && it.alone:
		default:
			return false
		}
	}
	return true
}

// done holds when every entry has come to an end.
func (p *plan) done() bool {
	for _, it := range p.items {
		if it.state != Settled && it.state != Accepted && it.state != Skipped {
			return false
		}
	}
	return true
}

// held parks, newest first, an entry that nothing but skipped steps hold back: it would wait for ever without a word.
func (p *plan) held() *item {
	for _, it := range slices.Backward(p.items) {
		if it.state != Pending || it.alone {
			continue
		}
		if by := p.heldBy(it); by != "" {
			p.park(it, fmt.Sprintf("step %s, which builds on it, was skipped: retry undoes it all the same", by))
			return it
		}
	}
	return nil
}

func (p *plan) park(it *item, reason string) {
	it.state, it.reason = Parked, reason
	it.parks++
}

// parkDigest fits one park of one entry: what was shown, and the how manieth time.
func (it *item) parkDigest() activities.Digest {
	var drift activities.Digest
	if it.undone.Drift != nil {
		drift = it.undone.Drift.Digest
	}
	return activities.DigestOf([]byte(it.entry.Token), fmt.Appendf(nil, "park %d", it.parks), []byte(it.reason), []byte(drift))
}

// counts is how many entries are not settled, and how many of those wait for a person.
func (p *plan) counts() (pending, parked int) {
	for _, it := range p.items {
		switch it.state {
		case Settled, Accepted, Skipped:
		case Parked:
			parked++
			pending++
		default:
			pending++
		}
	}
	return pending, parked
}

// heldBack says that held would park an entry now.
func (p *plan) heldBack() bool {
	for _, it := range p.items {
		if it.state == Pending && !it.alone && p.heldBy(it) != "" {
			return true
		}
	}
	return false
}

// heldBy is the skipped step that alone holds an entry back; empty where something else does, or nothing.
func (p *plan) heldBy(it *item) (by string) {
	for _, d := range p.dependents[it.entry.Step] {
		switch d.state {
		case Settled, Accepted:
		case Skipped:
			by = d.entry.Step
		default:
			return ""
		}
	}
	return by
}
