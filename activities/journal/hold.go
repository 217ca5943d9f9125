package journal

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Who holds a token's record is written in numbered documents, each of which replaces the one
// before: hold-1, hold-2, and so on. As each of them is written once, a hold and a release that
// meet are decided by which of them gets the next number.

// holdDoc says who needs the record, or that its release has begun, after which nobody can hold it
// any more.
type holdDoc struct {
	Holders   []activities.Owner `json:"holders,omitempty"`
	Releasing bool               `json:"releasing,omitempty"`
	At        time.Time          `json:"at"`
}

const holdPrefix = "hold-"

func holdName(n int) string { return fmt.Sprintf("%s%d", holdPrefix, n) }

// lastHold is the document that counts, and its number: 0 where there is none.
func (t *Token) lastHold() (n int, last holdDoc, err error) {
	for {
		var next holdDoc
		found, err := t.Read(holdName(n+1), &next)
		if err != nil || !found {
			return n, last, err
		}
		n, last = n+1, next
	}
}

// amendHold writes what change makes of the document that counts, unless that stays as it is.
// Another writer may come first: then change is asked again.
func (t *Token) amendHold(change func(last holdDoc) (next holdDoc, changed bool, err error)) error {
	for {
		n, last, err := t.lastHold()
		if err != nil {
			return err
		}
		next, changed, err := change(last)
		if err != nil || !changed {
			return err
		}
		next.At = time.Now().UTC()
		if created, err := t.Create(holdName(n+1), &next); err != nil || created {
			return err
		}
	}
}

// Hold keeps the token's record from being released, for as long as the holder needs it. It is
// false where the release has begun.
func (t *Token) Hold(holder activities.Owner) (held bool, err error) {
	if fate, err := t.Fate(); err != nil || fate != Undecided {
		return fate == Undoing, err // the undo has begun: what the token keeps of it is not needed for another
	}
	err = t.amendHold(func(last holdDoc) (holdDoc, bool, error) {
		held = !last.Releasing
		if !held || slices.Contains(last.Holders, holder) {
			return last, false, nil
		}
		return holdDoc{Holders: append(slices.Clone(last.Holders), holder)}, true, nil
	})
	return held && err == nil, err
}

// IsHeld says that somebody holds the token's record.
func (t *Token) IsHeld() (bool, error) {
	_, last, err := t.lastHold()
	return len(last.Holders) > 0, err
}

// Keeper is the holder that keeps the record whatever becomes of its task, and ends that by itself:
// one without a run. found is false where there is none.
func (t *Token) Keeper() (keeper activities.Owner, found bool, err error) {
	_, last, err := t.lastHold()
	i := slices.IndexFunc(last.Holders, func(o activities.Owner) bool { return o.Run == "" })
	if err != nil || i < 0 {
		return keeper, false, err
	}
	return last.Holders[i], true, nil
}

// EndHold ends a hold: its holder is over.
func (t *Token) EndHold(holder activities.Owner) error {
	return t.amendHold(func(last holdDoc) (holdDoc, bool, error) {
		left := slices.DeleteFunc(slices.Clone(last.Holders), func(o activities.Owner) bool { return o == holder })
		return holdDoc{Holders: left}, len(left) < len(last.Holders), nil
	})
}

// endHolding makes it impossible to hold the token. It is Fenced while somebody does.
func (t *Token) endHolding() error {
	return t.amendHold(func(last holdDoc) (holdDoc, bool, error) {
		if len(last.Holders) > 0 {
			var names []string
			for _, holder := range last.Holders {
				names = append(names, holder.Workflow)
			}
			return last, false, activities.Errorf(activities.Fenced, "token %s is held by %s: its record is still needed",
				filepath.Base(t.dir), strings.Join(names, ", "))
		}
		return holdDoc{Releasing: true}, !last.Releasing, nil
	})
}
