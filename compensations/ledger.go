package compensations

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Ledger is the stack of registered compensations, in the order of registering. The zero value is empty.
type Ledger struct {
	entries []activities.Entry
	tokens  map[string]bool
}

// Push registers an entry at the top and gives it its sequence number. A token that is there already is refused: the
// same step registers once.
func (l *Ledger) Push(e activities.Entry) (activities.Entry, bool) {
	if l.tokens[e.Token] {
		return e, false
	}
	e.Version = activities.EntryVersion
	e.Seq = 1
	if n := len(l.entries); n > 0 {
		e.Seq = l.entries[n-1].Seq + 1
	}
	l.add(e)
	return e, true
}

// Adopt takes the entries of another ledger of the same task, as they are, where their tokens are not here yet.
func (l *Ledger) Adopt(entries []activities.Entry) {
	for _, e := range entries {
		if !l.tokens[e.Token] {
			l.add(e)
		}
	}
	slices.SortStableFunc(l.entries, func(a, b activities.Entry) int { return a.Seq - b.Seq })
}

func (l *Ledger) add(e activities.Entry) {
	if l.tokens == nil {
		l.tokens = map[string]bool{}
	}
	l.tokens[e.Token] = true
	l.entries = append(l.entries, e)
}

// Entries are all entries, the oldest first. The caller does not change them.
func (l *Ledger) Entries() []activities.Entry { return l.entries }
