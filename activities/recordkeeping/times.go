package recordkeeping

import (
	"cmp"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Times are those of a token's record, each zero until it happens.
type Times struct {
	// Committed is when its task committed, and Until how long it is kept then.
	Committed time.Time `json:"committed,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	// Begun and Ended are those of its undo.
	Begun    time.Time `json:"begun,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Released time.Time `json:"released,omitzero"`
}

// SetState sets the state of a record for retention, as these times tell it.
func (t Times) SetState(r *activities.Record) {
	switch {
	case !t.Released.IsZero():
		r.State, r.Ended, r.Undone = activities.RecordReleased, t.Released, !t.Begun.IsZero()
	case !t.Begun.IsZero():
		r.State, r.Ended = activities.RecordUndone, t.Ended
		r.Until = cmp.Or(t.Ended, t.Begun).Add(cmp.Or(r.Entry.Keep, activities.DefaultKeep))
	case !t.Committed.IsZero():
		r.State, r.Ended, r.Until = activities.RecordCommitted, t.Committed, t.Until
	default:
		r.State = activities.RecordOpen
	}
}

// FormatTime is how a journal writes a time as text: to the nanosecond; empty for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// ParseTime reads a time that FormatTime has written. What is none is the zero time.
func ParseTime(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at
}
