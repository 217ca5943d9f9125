package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// checkMark is DamagedRecord for a mark that leads out of the token's folder: no step has written
// it.
func (c *call) checkMark(d *database, m mark) error {
	if filepath.Base(m.Attempt) == m.Attempt {
		return nil
	}
	return c.damagedMark(d, "is not what the step has written")
}

func (c *call) damagedMark(d *database, what string) error {
	return activities.Errorf(activities.DamagedRecord,
		"%s: the row of token %s in the table %s %s: nothing was touched; put the row back, or decide what becomes of "+
			"the step",
		d.path, c.Entry.Token, markers, what)
}

// checkUnmarked is DamagedRecord for a token without a mark whose change is in the database
// nevertheless. Without a mark no attempt has committed, unless somebody has deleted it; so what an
// attempt was about to write must not be there.
func (c *call) checkUnmarked(d *database) error {
	files, err := os.ReadDir(c.token.Dir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), rowsName) {
			continue
		}
		s, n, err := readStore(filepath.Join(c.token.Dir(), f.Name()))
		if err != nil {
			continue // it was never sealed: that comes before the commit
		}
		r := &restore{call: c, database: d, store: s, notes: n}
		there, err := r.hasChange()
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
		if there {
			return c.damagedMark(d, "is gone, and the database holds what the step was to write there")
		}
	}
	return nil
}

// hasChange reports whether the database holds what an attempt was about to write: one of its rows,
// or the content as a whole.
func (r *restore) hasChange() (there bool, err error) {
	if r.notes.Checkpoint != "" {
		if r.notes.After.digest() == r.notes.Before.digest() {
			return false, nil
		}
		now, err := r.content()
		return now.digest() == r.notes.After.digest(), err
	}
	tables, err := r.tables()
	if err != nil {
		return false, err
	}
	return there, r.store.each(func(i images) error {
		t := tables[lower(i.table)]
		if there || t == nil || t.sql != r.notes.Tables[t.name] {
			return nil
		}
		now, err := t.read(r.database, i.key)
		there = equal(now, i.after)
		return err
	})
}
