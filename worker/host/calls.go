package host

import (
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
)

// settleLimit is how long a stopping worker waits for calls that it has cancelled to end, and their ends to be reported.
const settleLimit = 5 * time.Second

// calls counts the activities that run, until the server has been told how they ended: the SDK gives a slot back then.
type calls struct {
	mu      sync.Mutex
	running map[*worker.SlotPermit]bool
	changed chan struct{} // closed and made anew when one ends
}

func newCalls() *calls {
	return &calls{running: map[*worker.SlotPermit]bool{}, changed: make(chan struct{})}
}

// tuner is a worker's: with so many slots for activities, whose use is counted.
func (c *calls) tuner(activities int) (worker.WorkerTuner, error) {
	t, err := worker.NewFixedSizeTuner(worker.FixedSizeTunerOptions{NumActivitySlots: activities})
	if err != nil {
		return nil, err
	}
	return countedTuner{t, countedSlots{t.GetActivityTaskSlotSupplier(), c}}, nil
}

// wait returns when no call runs, or after settleLimit.
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

func (c *calls) began(p *worker.SlotPermit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[p] = true
}

func (c *calls) ended(p *worker.SlotPermit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[p] { // a slot may have been reserved for nothing
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
	s.calls.began(info.Permit())
	s.SlotSupplier.MarkSlotUsed(info)
}

func (s countedSlots) ReleaseSlot(info worker.SlotReleaseInfo) {
	s.calls.ended(info.Permit())
	s.SlotSupplier.ReleaseSlot(info)
}
