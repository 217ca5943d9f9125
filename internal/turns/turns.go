// Package turns lets few at a time act under a name in this process.
package turns

import (
	"context"
	"sync"
)

// Turns are those of all names.
type Turns struct {
	// Several is how many may act at once under a name. Defaults to 1.
	Several int

	mu sync.Mutex
	by map[string]*turn
}

type turn struct {
	held  chan struct{}
	users int
}

// Take waits for a turn under a name, until ctx ends.
func (t *Turns) Take(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	if t.by == nil {
		t.by = map[string]*turn{}
	}
	mine := t.by[name]
	if mine == nil {
		mine = &turn{held: make(chan struct{}, max(1, t.Several))}
		t.by[name] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.by, name)
		}
	}
	select {
	case mine.held <- struct{}{}:
		return func() { <-mine.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
