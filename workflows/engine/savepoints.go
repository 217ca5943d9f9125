package engine

import (
	"maps"
	"slices"
)

// savepoints are the places that the agent of a session may roll back to.
type savepoints struct {
	Places map[string]int // the first sequence number behind each
	Bare   string         // one that no entry bears yet; empty if there is none
}

// Add gives a name to the place before the next entry.
func (p *savepoints) Add(name string, next int) {
	p.mark(name, next)
	p.Bare = name
}

// moveTo gives a name to the place behind an entry, wherever it was before. top is the sequence
// number of the last entry.
func (p *savepoints) moveTo(name string, seq, top int) {
	delete(p.Places, name)
	p.mark(name, seq+1)
	if seq == top {
		p.Bare = name
	}
}

// take returns the savepoint that the next entry bears, for a rollback after the session has
// committed.
func (p *savepoints) take() string {
	name := p.Bare
	p.Bare = ""
	return name
}

// mark notes the place of a savepoint that an entry bears.
func (p *savepoints) mark(name string, seq int) {
	if _, isKnown := p.Places[name]; isKnown || name == "" {
		return
	}
	if p.Places == nil {
		p.Places = map[string]int{}
	}
	p.Places[name] = seq
}

// drop forgets the savepoints behind a place that was rolled back to.
func (p *savepoints) drop(from int) {
	maps.DeleteFunc(p.Places, func(_ string, first int) bool { return first > from })
}

// move has the next entry bear the last savepoint behind which nothing is done any more. top is the
// sequence number of the last entry.
func (p *savepoints) move(top int) {
	p.Bare = ""
	for _, name := range p.Names() {
		if first := p.Places[name]; first > top && (p.Bare == "" || first >= p.Places[p.Bare]) {
			p.Bare = name
		}
	}
}

func (p *savepoints) Names() []string { return slices.Sorted(maps.Keys(p.Places)) }
