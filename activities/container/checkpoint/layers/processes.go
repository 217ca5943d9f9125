package layers

import "sync"

// firstProcess is the first process of a running container, as a helper has found it.
type firstProcess struct {
	pid int
	// born tells it from any other process that may have the pid later.
	born string
	// of is the container's name.
	of string
}

// processes remember the first processes of containers. A helper that gets a remembered one makes
// sure that it still is.
type processes struct {
	mu    sync.Mutex
	known map[string]firstProcess
}

func (p *processes) recall(id string) (firstProcess, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first, ok := p.known[id]
	return first, ok
}

func (p *processes) remember(id string, first firstProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]firstProcess{}
	}
	p.known[id] = first
}

func (p *processes) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, id)
}
