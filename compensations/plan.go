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

// isEnd says that nothing more happens to an entry.
func (s UndoState) isEnd() bool { return s == Settled || s == Accepted || s == Skipped }

// leavesLedger says that the entry comes off the ledger.
func (it *item) leavesLedger() bool { return it.state == Settled || it.state == Accepted }

// item is an entry in an unwinding.
type item struct {
	entry  activities.Entry
	state  UndoState // changed by plan.setState only
	cancel func()    // ends the undo that is scheduled
	chosen UndoState // the end that a person has chosen while it waits for its host: it comes to it when nothing can act any more
	findings

	needs    []*item // those in the same unwinding
	blockers int     // of those that need it, how many are neither settled nor accepted
	skips    int     // of the blockers, how many are skipped
	skipper  *item   // the last of those
	queued   bool    // it is in the heap of what is ready
	started  bool    // it is among plan.started
}

// findings are what an unwinding has found out about an entry so far. They are carried over.
type findings struct {
	Undone   activities.Undone   `json:"undone,omitzero"`
	Decision activities.Decision `json:"decision,omitzero"` // a person's word for the next undo
	Reset    bool                `json:"reset,omitempty"`   // the next undo is a reset
	Reason   string              `json:"reason,omitempty"`  // why it waits or is parked
	Parks    int                 `json:"parks,omitempty"`   // how often it was parked: part of a park's digest
	Shown    activities.Digest   `json:"shown,omitempty"`   // that of the present park, where its reason was shortened since
	Alone    bool                `json:"alone,omitempty"`   // undo it although a skipped step needs it
	Silent   bool                `json:"silent,omitempty"`  // nobody was alerted to the present park yet
	Forced   int                 `json:"forced,omitempty"`  // how often its drift policy has overwritten drift
	Notes    []string            `json:"notes,omitempty"`
}

// plan is the pure part of an unwinding: what may be undone now, and what holds back what. It knows no Temporal. Every
// change of state takes time in the number of needs of its entry, not of the ledger.
type plan struct {
	items  []*item
	byStep map[string]*item
	ready  itemHeap // pending, and nothing holds them back

	waiting      map[string]int     // undos that wait for a worker, by task queue
	queuedBehind map[string][]*item // ready items behind those
	running      int                // undos scheduled on a queue that is served

	started     []*item      // in the order of their first undo
	parked      []*item      // for a person
	unannounced []StepReport // what nobody was alerted to yet, as it was when it came to that
	unsettled   int          // how many items are not at an end
}

func newPlan(entries []activities.Entry) *plan {
	p := &plan{byStep: make(map[string]*item, len(entries)), waiting: map[string]int{}, queuedBehind: map[string][]*item{}}
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
	p.unsettled = len(p.items)
	for _, it := range p.items {
		p.setState(it, Pending)
	}
	return p
}

// setState changes the state of an item, and with it what may be undone next.
func (p *plan) setState(it *item, s UndoState) {
	was := it.state
	it.state = s
	if was == Running {
		p.running--
	}
	if was == Parked {
		p.parked = slices.DeleteFunc(p.parked, func(o *item) bool { return o == it })
	}
	switch s {
	case Running:
		p.running++
	case Parked:
		p.parked = append(p.parked, it)
	default:
	}
	if s != Pending && !it.started {
		it.started = true
		p.started = append(p.started, it)
	}
	if queue := it.entry.Place.Queue; (was == Waiting) != (s == Waiting) {
		if s == Waiting {
			p.waiting[queue]++
		} else if p.waiting[queue]--; p.waiting[queue] == 0 {
			for _, behind := range p.queuedBehind[queue] {
				p.queueIfReady(behind)
			}
			delete(p.queuedBehind, queue)
			delete(p.waiting, queue)
		}
	}
	switch {
	case s == Pending:
		p.queueIfReady(it)
	case s.isEnd():
		p.unsettled--
		for _, need := range it.needs {
			if s == Skipped {
				need.skips++
				if need.skipper == nil || need.skipper.entry.Seq < it.entry.Seq {
					need.skipper = it
				}
			} else {
				need.blockers--
			}
			p.queueIfReady(need)
		}
	}
}

// queueIfReady queues a pending item that nothing holds back, and parks one that only skipped steps hold back: it would wait
// for ever without a word.
func (p *plan) queueIfReady(it *item) {
	switch {
	case it.state != Pending:
	case it.blockers == 0 || it.Alone && it.blockers == it.skips:
		if !it.queued {
			it.queued = true
			heap.Push(&p.ready, it)
		}
	case it.blockers == it.skips:
		p.park(it, fmt.Sprintf("step %s, which builds on it, was skipped: retry undoes it all the same", it.skipper.entry.Step))
	}
}

// next is the newest entry that may be undone now; nil where none may. While an undo waits for a worker, no other is scheduled
// on that queue.
func (p *plan) next() *item {
	for len(p.ready) > 0 {
		it := p.ready[0]
		queue := it.entry.Place.Queue
		if it.state == Pending && p.waiting[queue] == 0 {
			return it
		}
		heap.Pop(&p.ready)
		it.queued = false
		if it.state == Pending {
			p.queuedBehind[queue] = append(p.queuedBehind[queue], it)
		}
	}
	return nil
}

// isDone holds when every entry has come to an end.
func (p *plan) isDone() bool { return p.unsettled == 0 }

// park makes an item wait for a person; one of low criticality is taken as it is.
func (p *plan) park(it *item, reason string) {
	it.Reason, it.Shown = clip(reason, maxParkReason), ""
	it.Parks++
	if it.entry.Policy.Criticality == activities.LowCritical {
		it.Notes = append(it.Notes, "accepted as it is: its criticality is low")
		p.setState(it, Accepted)
		return
	}
	p.setState(it, Parked)
	p.announce(it)
}

// maxParkReason is how much of an error the reason of a park tells, in bytes: alerts of many parks go out together.
const maxParkReason = 5000

// announce has somebody alerted to an item.
func (p *plan) announce(it *item) { p.unannounced = append(p.unannounced, it.report()) }

// parkDigest identifies one park of one entry: it covers what was shown and how often the entry was parked.
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

// itemHeap is a heap of items, the last registered on top.
type itemHeap []*item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].entry.Seq > h[j].entry.Seq }
func (h itemHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *itemHeap) Push(x any)        { *h = append(*h, x.(*item)) } //nolint:forcetypeassert // heap.Push of items only
func (h *itemHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
