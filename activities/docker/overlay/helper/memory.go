package helper

import (
	"maps"
	"slices"
	"sync"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// bookCache caches the last book of each container: parsing a page of a thousand checkpoints takes
// longer than making one more. The page on the disk decides: another helper may have written a
// newer one.
type bookCache struct {
	mu    sync.Mutex
	books map[string]*book
	// bearers maps containers whose own root can be a lower layer to the start in which that was
	// tried.
	bearers map[string]string
	// digests are of files that containers have shown.
	digests stack.Digests
}

func (m *bookCache) knowsBearer(container, born string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bearers[container] == born
}

func (m *bookCache) addBearer(container, born string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bearers == nil {
		m.bearers = map[string]string{}
	}
	m.bearers[container] = born
}

// recall returns the book on a page, if it is the cached one.
func (m *bookCache) recall(container string, on page) *book {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.books[container]
	if !ok || b.on.digest != on.digest || b.on.place != on.place {
		return nil
	}
	return b.clone()
}

// remember caches a book that has been written.
func (m *bookCache) remember(b *book) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.books == nil {
		m.books = map[string]*book{}
	}
	m.books[b.Container] = b.clone()
}

func (m *bookCache) forget(container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.books, container)
	delete(m.bearers, container)
}

func (b *book) clone() *book {
	c := *b
	c.Below, c.Marks, c.Doors = maps.Clone(b.Below), maps.Clone(b.Marks), maps.Clone(b.Doors)
	c.Busy, c.Over, c.Turns = maps.Clone(b.Busy), maps.Clone(b.Over), maps.Clone(b.Turns)
	c.Reverses, c.Others = maps.Clone(b.Reverses), maps.Clone(b.Others)
	c.Except = slices.Clone(b.Except)
	c.Bare, c.Merged = slices.Clone(b.Bare), slices.Clone(b.Merged)
	if b.Doing != nil {
		doing := *b.Doing
		c.Doing = &doing
	}
	if b.Landing != nil {
		landing := *b.Landing
		c.Landing = &landing
	}
	return &c
}
