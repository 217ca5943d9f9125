package workflows

import (
	"maps"
	"slices"
)

// savepoints are the places that the agent of a session may roll back to.
type savepoints struct {
	places map[string]int // the first sequence number behind each
	bare   string         // one that no entry bears yet; empty if there is none
}

// add gives a name to the place before the next entry.
func (p *savepoints) add(name string, next int) {
	p.mark(name, next)
	p.bare = name
}

// take returns the savepoint that the next entry bears, for a rollback after the session has committed.
func (p *savepoints) take() string {
	name := p.bare
	p.bare = ""
	return name
}

// mark notes the place of a savepoint that an entry bears.
func (p *savepoints) mark(name string, seq int) {
	if _, isKnown := p.places[name]; isKnown || name == "" {
		return
	}
	if p.places == nil {
		p.places = map[string]int{}
	}
	p.places[name] = seq
}

// drop forgets the savepoints behind a place that was rolled back to.
func (p *savepoints) drop(from int) {
	maps.DeleteFunc(p.places, func(_ string, first int) bool { return first > from })
}

// bear has the next entry bear the last savepoint behind which nothing is done any more. top is the sequence number of the last entry.
func (p *savepoints) bear(top int) {
	p.bare = ""
	for _, name := range p.names() {
		if first := p.places[name]; first > top && (p.bare == "" || first >= p.places[p.bare]) {
			p.bare = name
		}
	}
}

func (p *savepoints) names() []string { return slices.Sorted(maps.Keys(p.places)) }
