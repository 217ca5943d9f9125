package alteration

import (
	"errors"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
)

const (
	// Tries is how often statements run at most, where they change other tables each time.
	Tries = 5
	// ReturnedRows is how many rows of the last statement a step returns.
	ReturnedRows = 100
)

// ErrUnprepared says that the statements have run as often as they may.
var ErrUnprepared = errors.New(
	"the statements change other tables, or others change the schema, each time they run; it is tried again")

// Change is what the statements did, in a transaction that is still open.
type Change struct {
	Tables  []*capture.Table
	Changes int64 // of the statements themselves
	Rows    []map[string]any
	Bytes   int64
	Events  int64

	// Shifting are the tables of which the statements change other rows each time that they run, where
	// that was tried.
	Shifting []string

	Alterations []*Alteration
	made        []uint32 // the tables that they made, which go as a whole

	Declared *Declared          // the undo that the step declares: nothing is captured
	Uncaught []activities.Count // the rows that changed without being captured
}

// Counts are how many rows of each table came, went and changed.
func (d *Change) Counts() []activities.Count {
	all := slices.Clone(d.Uncaught)
	for _, t := range d.Tables {
		all = append(all,
			activities.Count{Of: t.FullName(), Added: t.Came, Removed: t.Went, Changed: t.Changed, Before: t.Total})
	}
	return all
}

// IsMade reports whether the statements have made a table.
func (d *Change) IsMade(oid uint32) bool { return slices.Contains(d.made, oid) }
