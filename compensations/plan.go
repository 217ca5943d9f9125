package compensations

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// UndoState is the state of an entry while the ledger unwinds.
type UndoState string

// The states. Settled, Accepted and Skipped are final; only Skipped holds back what the entry
// needs.
const (
	Registered UndoState = "registered" // the task is going forward
	Pending    UndoState = "pending"    // to be undone when its turn comes
	Running    UndoState = "undoing"    // its undo is scheduled
	Waiting    UndoState = "waiting"    // no worker serves its place, or a circuit breaker is open: it goes on by itself
	Parked     UndoState = "parked"     // a person must resolve it
	Settled    UndoState = "settled"    // undone, with an outcome
	Accepted   UndoState = "accepted"   // left as it is, by a person or because the step says so; what it needs goes on
	Skipped    UndoState = "skipped"    // left as it is by a person; what it needs goes on waiting
)

// isEnd reports whether the state is final.
func (s UndoState) isEnd() bool { return s == Settled || s == Accepted || s == Skipped }

// leavesLedger reports whether the entry is taken off the ledger.
func (it *item) leavesLedger() bool { return it.state == Settled || it.state == Accepted }

// item is an entry in an unwinding.
type item struct {
	entry  activities.Entry
	state  UndoState // changed by plan.setState only
	cancel func()    // ends the scheduled undo
	// the final state that a person chose while it waited for its host; reached when nothing can act
	// any more
	chosen UndoState
	// behindBreaker: what it waits for is a circuit breaker, which concerns no other entry of its queue
	behindBreaker bool
	findings

	needs    []*item // in the same unwinding
	blockers int     // the number of items that need it and are neither settled nor accepted
	skips    int     // the number of blockers that are skipped
	skipper  *item   // the last of the skipped blockers
	queued   bool    // it is in plan.ready
	started  bool    // it is in plan.started
}

// findings are what an unwinding has found out about an entry so far. They are carried over to the
// next run.
type findings struct {
	Undone   activities.Undone   `json:"undone,omitzero"`
	Decision activities.Decision `json:"decision,omitzero"` // a person's decision for the next undo
	Reset    bool                `json:"reset,omitempty"`   // the next undo is a reset
	Reason   string              `json:"reason,omitempty"`  // why it waits or is parked
	Parks    int                 `json:"parks,omitempty"`   // how often it was parked: part of a park's digest
	// the digest of the present park, if its reason was shortened since
	Shown  activities.Digest `json:"shown,omitempty"`
	Alone  bool              `json:"alone,omitempty"`  // undo it although a skipped step needs it
	Silent bool              `json:"silent,omitempty"` // no alert about the present park has been sent yet
	Forced int               `json:"forced,omitempty"` // how often its drift policy has overwritten drift
	Notes  []string          `json:"notes,omitempty"`
	// Signed means that a worker has refused a decision that was not signed.
	Signed bool `json:"signed,omitempty"`
	// ForcedDrift is what undos were to overwrite, by a person's decision or the drift policy, the
	// last first: some of it may be nowhere else.
	ForcedDrift *activities.Drift `json:"forcedDrift,omitempty"`
}

// force has the next undo overwrite the drift that was found.
func (it *item) force(drift activities.Drift, who, why string) {
	it.Decision = activities.Decision{Force: drift.Digest, Who: who, Why: why}
	it.keepForced(drift)
}

// keepForced keeps what an undo is to overwrite.
func (f *findings) keepForced(drift activities.Drift) {
	if was := f.ForcedDrift; was != nil && was.Digest != drift.Digest {
		drift.Diff = activities.HeadDiff(drift.Diff+"\n"+was.Diff, activities.MaxDiff)
	}
	f.ForcedDrift = &drift
}

// plan is the pure part of an unwinding: which entries may be undone now, and which hold back
// others. It is independent of Temporal. A change of state takes time proportional to the needs of
// its entry, not to the ledger.
type plan struct {
	items  []*item
	byStep map[string]*item
	ready  itemHeap // pending items that nothing holds back

	waiting      map[string]int     // the number of undos that wait for a worker, by task queue
	unserved     int                // of those that wait, for a worker or for a circuit breaker
	queuedBehind map[string][]*item // ready items that wait behind those
	running      int                // the number of undos scheduled on queues that are served

	started     []*item      // in the order of their first undo
	parked      []*item      // waiting for a person
	unannounced []StepReport // undos about which no alert has been sent yet, as they were when one became due
	unsettled   int          // the number of items that are not in a final state
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

// setState changes the state of an item, and so what may be undone next.
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
		change := -1
		if s == Waiting {
			change = 1
		}
		p.unserved += change
		if !it.behindBreaker {
			p.waiting[queue] += change
		}
		if p.waiting[queue] == 0 {
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

// queueIfReady queues a pending item that nothing holds back, and parks one that only skipped steps
// hold back, which would otherwise wait for ever in silence.
func (p *plan) queueIfReady(it *item) {
	switch {
	case it.state != Pending:
	case it.blockers == 0 || it.Alone && it.blockers == it.skips:
		if !it.queued {
			it.queued = true
			heap.Push(&p.ready, it)
		}
	case it.blockers == it.skips:
		p.parkItem(it,
			fmt.Sprintf("step %s, which builds on it, was skipped: retry undoes it all the same", it.skipper.entry.Step))
	}
}

// nextReady returns the newest entry that may be undone now; nil if there is none. While an undo
// waits for a worker, no other is scheduled on that queue.
func (p *plan) nextReady() *item {
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

// isDone reports whether every entry is in a final state.
func (p *plan) isDone() bool { return p.unsettled == 0 }

// parkItem makes an item wait for a person; one of low criticality is accepted as it is.
func (p *plan) parkItem(it *item, reason string) {
	it.Reason, it.Shown = clip(reason, maxParkReason), ""
	it.Parks++
	if it.entry.Policy.Criticality == activities.LowCritical {
		it.Notes = append(it.Notes, "accepted as it is: its criticality is low")
		p.setState(it, Accepted)
		return
	}
	p.setState(it, Parked)
	p.announceItem(it)
}

// maxParkReason is how many bytes of an error the reason of a park keeps: alerts of many parks are
// sent together.
const maxParkReason = 5000

// announceItem makes an alert about an item due.
func (p *plan) announceItem(it *item) { p.unannounced = append(p.unannounced, it.report()) }

// parkDigest identifies one park of an entry: it covers what was shown and how often the entry was
// parked.
func (it *item) parkDigest() activities.Digest {
	if it.Shown != "" {
		return it.Shown
	}
	var drift activities.Digest
	if it.Undone.Drift != nil {
		drift = it.Undone.Drift.Digest
	}
	return activities.DigestOf([]byte(it.entry.Token), fmt.Appendf(nil, "park %d", it.Parks), []byte(it.Reason),
		[]byte(drift))
}

// itemHeap is a heap of items with the last registered one on top.
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
