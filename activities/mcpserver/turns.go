package mcpserver

import (
	"context"
	"sync"
)

// turns let one at a time act under a name in this process.
type turns struct {
	mu sync.Mutex
	by map[string]*turn
}

type turn struct {
	held  chan struct{}
	users int
}

func (t *turns) take(ctx context.Context, name string) (release func(), err error) {
	t.mu.Lock()
	if t.by == nil {
		t.by = map[string]*turn{}
	}
	mine := t.by[name]
	if mine == nil {
		mine = &turn{held: make(chan struct{}, 1)}
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
