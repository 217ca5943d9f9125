package file

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// records joins the journals of all roots. A token can have a folder in several of them, because an
// undo leaves its tombstone wherever the record could have been; the root with the record counts.
type records []journal.Records

func (w *world) records() records {
	var all records
	for _, r := range w.roots {
		all = append(all, journal.Records{Journal: r.journal, Bytes: r.storedBytes})
	}
	return all
}

// Records implements activities.Records.
func (all records) Records(ctx context.Context) (found []activities.Record, problems []error, err error) {
	at := map[string]int{}
	for _, one := range all {
		more, bad, err := one.Records(ctx)
		if err != nil {
			return nil, nil, err
		}
		problems = append(problems, bad...)
		for _, r := range more {
			i, twice := at[r.Entry.Token]
			switch {
			case !twice:
				at[r.Entry.Token] = len(found)
				found = append(found, r)
			case found[i].Since.IsZero():
				found[i] = r
			}
		}
	}
	// A token that cannot be read in one root must not be taken for the tombstone it has in another.
	return slices.DeleteFunc(found, func(r activities.Record) bool {
		return r.Since.IsZero() &&
			slices.ContainsFunc(problems, func(err error) bool { return strings.Contains(err.Error(), r.Entry.Token) })
	}), problems, nil
}

// Commit implements activities.Records.
func (all records) Commit(ctx context.Context, token string, until time.Time) (err error) {
	for _, one := range all {
		err = errors.Join(err, one.Commit(ctx, token, until))
	}
	return err
}

// Hold implements activities.Records.
func (all records) Hold(ctx context.Context, token string, holder activities.Owner) (held bool, err error) {
	for _, one := range all {
		if held, err := one.Hold(ctx, token, holder); err != nil || !held {
			return false, err
		}
	}
	return true, nil
}

// EndHold implements activities.Records.
func (all records) EndHold(ctx context.Context, token string, holder activities.Owner) (err error) {
	for _, one := range all {
		err = errors.Join(err, one.EndHold(ctx, token, holder))
	}
	return err
}

// Claim implements activities.Records.
func (all records) Claim(ctx context.Context, e activities.Entry) (err error) {
	for _, one := range all {
		err = errors.Join(err, one.Claim(ctx, e))
	}
	return err
}

// Abandon implements activities.Records.
func (all records) Abandon(ctx context.Context, token string) (err error) {
	for _, one := range all {
		err = errors.Join(err, one.Abandon(ctx, token))
	}
	return err
}

// Forget implements activities.Records.
func (all records) Forget(ctx context.Context, token string) (err error) {
	for _, one := range all {
		if err := one.Forget(ctx, token); err != nil {
			return err
		}
	}
	return nil
}

// storedBytes is what a token takes in the store besides its journal.
func (r *root) storedBytes(e activities.Entry) (total int64) {
	for _, path := range []string{stagePath(e.Token), undoPath(e.Token), redoPath(e.Token)} {
		_ = filepath.WalkDir(filepath.Join(r.store.Name(), path), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // it has just been moved
			}
			if info, err := d.Info(); err == nil {
				total += info.Size()
			}
			return nil
		})
	}
	return total
}
