package compensations

import (
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Ledger is the stack of registered compensations, in the order of registration. The zero value is
// empty.
type Ledger struct {
	entries []activities.Entry
	tokens  map[string]bool
	last    int // the highest sequence number that was ever assigned
}

// Push registers an entry at the top and assigns its sequence number. If the token is on the ledger
// already, it returns the entry with that token: a step registers once.
func (l *Ledger) Push(e activities.Entry) (_ activities.Entry, fresh bool) {
	if l.tokens[e.Token] {
		i := slices.IndexFunc(l.entries, func(other activities.Entry) bool { return other.Token == e.Token })
		return l.entries[i], false
	}
	e.Version = activities.EntryVersion
	e.Seq = l.last + 1
	l.insert(e)
	return e, true
}

// Adopt adds the entries of another ledger of the same task unchanged, except for tokens that are
// here already.
func (l *Ledger) Adopt(entries []activities.Entry) {
	l.entries = slices.Grow(l.entries, len(entries))
	for _, e := range entries {
		if !l.tokens[e.Token] {
			l.insert(e)
		}
	}
	slices.SortStableFunc(l.entries, func(a, b activities.Entry) int { return a.Seq - b.Seq })
}

// Drop takes entries off the ledger: they are undone, or never will be.
func (l *Ledger) Drop(isDropped func(token string) bool) {
	l.entries = slices.DeleteFunc(l.entries, func(e activities.Entry) bool {
		if !isDropped(e.Token) {
			return false
		}
		delete(l.tokens, e.Token)
		return true
	})
}

// Entries returns all entries, the oldest first. The caller must not change them.
func (l *Ledger) Entries() []activities.Entry { return l.entries }

func (l *Ledger) insert(e activities.Entry) {
	if l.tokens == nil {
		l.tokens = map[string]bool{}
	}
	l.tokens[e.Token] = true
	l.entries = append(l.entries, e)
	l.last = max(l.last, e.Seq)
}
