package helper

import (
	"maps"
	"slices"
	"sync"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// memory has the books that this helper has written last, of each container one: to read a page of a thousand checkpoints
// takes longer than to make one more. The page on the disk is what counts: another helper may have written a newer one.
type memory struct {
	mu    sync.Mutex
	books map[string]*book
	// bearers are the containers whose own root bears an overlay, and the start in which that was tried.
	bearers map[string]string
	// digests are of files that containers have shown.
	digests stack.Digests
}

func (m *memory) bears(container, born string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bearers[container] == born
}

func (m *memory) bore(container, born string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bearers == nil {
		m.bearers = map[string]string{}
	}
	m.bearers[container] = born
}

// recall returns the book on a page, if it is the one that is remembered.
func (m *memory) recall(container string, on page) *book {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.books[container]
	if !ok || b.on.digest != on.digest || b.on.place != on.place {
		return nil
	}
	return b.clone()
}

// remember keeps a book that has been written, as it is now.
func (m *memory) remember(b *book) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.books == nil {
		m.books = map[string]*book{}
	}
	m.books[b.Container] = b.clone()
}

func (m *memory) forget(container string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.books, container)
	delete(m.bearers, container)
}

func (b *book) clone() *book {
	c := *b
	c.Below, c.Marks, c.Doors = maps.Clone(b.Below), maps.Clone(b.Marks), maps.Clone(b.Doors)
	c.Busy, c.Over, c.Turns = maps.Clone(b.Busy), maps.Clone(b.Over), maps.Clone(b.Turns)
	c.Reverses = maps.Clone(b.Reverses)
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
