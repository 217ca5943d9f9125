package compensations

import (
	"container/heap"
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
	Accepted   UndoState = "accepted"   // the world is taken as it is, by a person or because the step says so
	Skipped    UndoState = "skipped"    // a person leaves it as it is, and what it needs waits on
)

// ended holds for the ends of an entry.
func (s UndoState) ended() bool { return s == Settled || s == Accepted || s == Skipped }

// off says that the entry comes off the ledger.
func (it *item) off() bool { return it.state == Settled || it.state == Accepted }

// item is an entry in an unwinding.
type item struct {
	entry  activities.Entry
	state  UndoState // changed by plan.set only
	cancel func()    // ends the undo that is scheduled
	progress

	needs    []*item // those in the same unwinding
	blockers int     // of those that need it, how many are neither settled nor accepted
	skips    int     // of the blockers, how many are skipped
	queued   bool    // it is in the heap of what is ready
	begun    bool    // it is among plan.begun
}

// progress is what an unwinding has found out about an entry so far.
type progress struct {
	Undone   activities.Undone   `json:"undone,omitzero"`
	Decision activities.Decision `json:"decision,omitzero"` // a person's word for the next undo
	Reset    bool                `json:"reset,omitempty"`   // the next undo is a reset
	Reason   string              `json:"reason,omitempty"`  // why it waits or is parked
	Parks    int                 `json:"parks,omitempty"`   // how often it was parked: part of a park's digest
	Shown    activities.Digest   `json:"shown,omitempty"`   // that of the present park, where its reason was shortened since
	Alone    bool                `json:"alone,omitempty"`   // undo it although a skipped step needs it
	Forced   int                 `json:"forced,omitempty"`  // how often its drift policy has overwritten drift
	Notes    []string            `json:"notes,omitempty"`
}

// plan is the pure part of an unwinding: what may be undone now, and what holds back what. It knows no Temporal. Every
// change of state takes time in the number of needs of its entry, not of the ledger.
type plan struct {
	items  []*item
	byStep map[string]*item
	ready  newest             // pending, and nothing holds them back
	sent   map[string]int     // undos that wait for a worker, by queue
	behind map[string][]*item // ready ones behind those
	begun  []*item            // in the order of their first undo
	parked []*item            // for a person
	untold []*item            // of these, those that nobody was told about
	open   int                // how many are not at an end
	busy   int                // of these, with an undo scheduled on a queue that is served
}

func newPlan(entries []activities.Entry) *plan {
	p := &plan{byStep: make(map[string]*item, len(entries)), sent: map[string]int{}, behind: map[string][]*item{}}
	p.items = make([]*item, 0, len(entries))
	for _, e := range entries {
		it := &item{entry: e, state: Registered}
		p.items = append(p.items, it)
		p.byStep[e.Step] = it
	}
	for _, it := range p.items {
		for _, need := range it.entry.Needs {
			if n := p.byStep[need]; n != nil && n != it {
				it.needs = append(it.needs, n)
				n.blockers++
			}
		}
	}
	p.open = len(p.items)
	for _, it := range p.items {
		p.set(it, Pending)
	}
	return p
}

// set changes the state of an item, and with it what may be undone next.
func (p *plan) set(it *item, s UndoState) {
	was := it.state
	it.state = s
	if was == Running {
		p.busy--
	}
	if was == Parked {
		p.parked = slices.DeleteFunc(p.parked, func(o *item) bool { return o == it })
	}
	switch s {
	case Running:
		p.busy++
	case Parked:
		p.parked = append(p.parked, it)
	default:
	}
	if s != Pending && !it.begun {
		it.begun = true
		p.begun = append(p.begun, it)
	}
	if queue := it.entry.Place.Queue; (was == Waiting) != (s == Waiting) {
		if s == Waiting {
			p.sent[queue]++
		} else if p.sent[queue]--; p.sent[queue] == 0 {
			for _, behind := range p.behind[queue] {
				p.offer(behind)
			}
			delete(p.behind, queue)
			delete(p.sent, queue)
		}
	}
	switch {
	case s == Pending:
		p.offer(it)
	case s.ended():
		p.open--
		for _, need := range it.needs {
			if s == Skipped {
				need.skips++
			} else {
				need.blockers--
			}
			p.offer(need)
		}
	}
}

// offer puts a pending item among the ready where nothing holds it back, and parks it where nothing but skipped steps do:
// it would wait for ever without a word.
func (p *plan) offer(it *item) {
	switch {
	case it.state != Pending:
	case it.blockers == 0 || it.Alone && it.blockers == it.skips:
		if !it.queued {
			it.queued = true
			heap.Push(&p.ready, it)
		}
	case it.blockers == it.skips:
		p.park(it, fmt.Sprintf("step %s, which builds on it, was skipped: retry undoes it all the same", p.skipped(it)))
	}
}

// skipped is the last of the skipped steps that need an item.
func (p *plan) skipped(it *item) (by string) {
	for _, d := range p.items {
		for _, need := range d.needs {
			if need == it && d.state == Skipped {
				by = d.entry.Step
			}
		}
	}
	return by
}

// next is the newest entry that may be undone now; nil where none may. Where one undo waits for a worker, no other one is
// sent.
func (p *plan) next() *item {
	for len(p.ready) > 0 {
		it := p.ready[0]
		queue := it.entry.Place.Queue
		if it.state == Pending && p.sent[queue] == 0 {
			return it
		}
		heap.Pop(&p.ready)
		it.queued = false
		if it.state == Pending {
			p.behind[queue] = append(p.behind[queue], it)
		}
	}
	return nil
}

// done holds when every entry has come to an end.
func (p *plan) done() bool { return p.open == 0 }

// park makes an item wait for a person; one of low criticality is taken as it is.
func (p *plan) park(it *item, reason string) {
	it.Reason, it.Shown = reason, ""
	it.Parks++
	if it.entry.Policy.Criticality == activities.LowCritical {
		it.Notes = append(it.Notes, "accepted as it is: its criticality is low")
		p.set(it, Accepted)
		return
	}
	p.set(it, Parked)
	p.untold = append(p.untold, it)
}

// parkDigest fits one park of one entry: what was shown, and the how manieth time.
func (it *item) parkDigest() activities.Digest {
	if it.Shown != "" {
		return it.Shown
	}
	var drift activities.Digest
	if it.Undone.Drift != nil {
		drift = it.Undone.Drift.Digest
	}
	return activities.DigestOf([]byte(it.entry.Token), fmt.Appendf(nil, "park %d", it.Parks), []byte(it.Reason), []byte(drift))
}

// newest is a heap of items, the last registered on top.
type newest []*item

func (n newest) Len() int           { return len(n) }
func (n newest) Less(i, j int) bool { return n[i].entry.Seq > n[j].entry.Seq }
func (n newest) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *newest) Push(x any)        { *n = append(*n, x.(*item)) } //nolint:forcetypeassert // heap.Push of items only
func (n *newest) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}
