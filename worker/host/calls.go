package host

import (
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
)

// settleLimit is how long a stopping worker waits for cancelled calls to end and be reported.
const settleLimit = 5 * time.Second

// calls counts running activities until the server knows how they ended, which is when the SDK
// frees their slots.
type calls struct {
	mu      sync.Mutex
	running map[*worker.SlotPermit]bool
	changed chan struct{} // closed and replaced when one ends
}

func newCalls() *calls {
	return &calls{running: map[*worker.SlotPermit]bool{}, changed: make(chan struct{})}
}

// tuner makes a tuner with that many activity slots, and counts their use.
func (c *calls) tuner(activities int) (worker.WorkerTuner, error) {
	t, err := worker.NewFixedSizeTuner(worker.FixedSizeTunerOptions{NumActivitySlots: activities})
	if err != nil {
		return nil, err
	}
	return countedTuner{t, countedSlots{t.GetActivityTaskSlotSupplier(), c}}, nil
}

// wait returns when no call is running, or after settleLimit.
func (c *calls) wait() {
	late := time.After(settleLimit)
	for {
		c.mu.Lock()
		none, changed := len(c.running) == 0, c.changed
		c.mu.Unlock()
		if none {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

func (c *calls) onStart(p *worker.SlotPermit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[p] = true
}

func (c *calls) onEnd(p *worker.SlotPermit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[p] { // a slot may have been reserved and not used
		delete(c.running, p)
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

type countedTuner struct {
	worker.WorkerTuner
	slots worker.SlotSupplier
}

func (t countedTuner) GetActivityTaskSlotSupplier() worker.SlotSupplier { return t.slots }

type countedSlots struct {
	worker.SlotSupplier
	calls *calls
}

func (s countedSlots) MarkSlotUsed(info worker.SlotMarkUsedInfo) {
	s.calls.onStart(info.Permit())
	s.SlotSupplier.MarkSlotUsed(info)
}

func (s countedSlots) ReleaseSlot(info worker.SlotReleaseInfo) {
	s.calls.onEnd(info.Permit())
	s.SlotSupplier.ReleaseSlot(info)
}
