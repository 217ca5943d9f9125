package emulator

import (
	"sync"
	"time"
)

// Clock is a clock that a test can move forward; otherwise it goes as all clocks do.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Now is its time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// Advance moves it forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}
