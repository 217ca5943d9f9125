package crash

import (
	"context"
	"sync"
)

// truce holds further faults back while a task has taken too long: if faults come faster than a
// step can finish, it never ends, which is no defect of the task. Without faults it has to close.
type truce struct {
	mu      sync.Mutex
	holders int
	over    chan struct{} // closed when the last holder ends it
}

// hold begins a truce, or joins it, until end is called.
func (t *truce) hold() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holders == 0 {
		t.over = make(chan struct{})
	}
	t.holders++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.holders--; t.holders == 0 {
			close(t.over)
		}
	}
}

// wait waits until nobody holds a truce.
func (t *truce) wait(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		held, over := t.holders > 0, t.over
		t.mu.Unlock()
		if !held {
			return
		}
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
}
