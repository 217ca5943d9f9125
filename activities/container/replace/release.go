package replace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Release removes the old container, which was kept until now, and what holds its names after an
// undo.
func (a *Action) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.Store.Open(ctx, e)
	if err != nil {
		return err
	}
	fate, err := t.DecideReleasing()
	if err != nil {
		return err
	}
	rec, _, err := a.readRecord(ctx, t)
	if err != nil && !target.IsDamaged(err) {
		return err
	}
	var old reference
	if _, err := t.Read(asideDoc, &old); err != nil && !target.IsDamaged(err) {
		return err
	}
	names, err := a.ownNames(ctx, t, e.Token, rec)
	if err != nil {
		return err
	}
	if err := a.dropNames(ctx, e.Token, names, fate, rec, old.ID); err != nil {
		return err
	}
	bulk, err := filepath.Glob(filepath.Join(t.Dir(), "*.gz"))
	if err != nil {
		return err
	}
	for _, file := range bulk {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(a.sweep(ctx, e.Token, ""), t.Drop(journal.Record), t.MarkReleased())
}

// ownNames are those that the token has given or held, and the one under which a later step has
// left the old container aside.
func (a *Action) ownNames(ctx context.Context, t *journal.Token, token string, rec stepRecord) ([]string, error) {
	names := []string{aside.NameFor(token), aside.ReturnName(token)}
	var back goingBack
	if _, err := t.Read(backDoc, &back); err != nil && !target.IsDamaged(err) {
		return nil, err
	}
	if back.Left != "" {
		names = append(names, back.Left)
	}
	if rec.Old.ContainerJSONBase == nil {
		return names, nil
	}
	left, err := a.setAside(token, rec.replacement).LeftBy(ctx)
	if left != "" {
		names = append(names, left)
	}
	return names, err
}

// dropNames removes whatever has one of these names of a token: after a commit the old container,
// after an undo what fences it, and never the old one; unless that has been made anew since, so
// that it is not what was put aside any more. What fences a later step, which has given the name,
// stays for as long as the record of that.
func (a *Action) dropNames(ctx context.Context, token string, names []string, fate journal.Fate, rec stepRecord,
	old string) error {
	for _, name := range names {
		holder, err := engine.FindHolder(ctx, a.Engine, name)
		if err != nil {
			return err
		}
		if holder == "" || fate == journal.Undoing && (rec.Old.ContainerJSONBase == nil || holder == rec.Old.ID) {
			continue
		}
		if fate == journal.Undoing {
			if mayDrop, err := a.Journals.MayDrop(name, token); err != nil {
				return err
			} else if !mayDrop {
				continue
			}
		}
		drop := a.Lineage.RemoveMade
		if holder == old {
			drop = a.Lineage.Remove
		}
		if err := drop(ctx, name); err != nil { // by name: another step may be bringing it back
			return err
		}
	}
	return nil
}
