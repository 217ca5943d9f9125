package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Release drops the checkpoint, what a rollback has kept, the container's settings, the manifests
// and the logs. What stays is the token's fate, and which container took the place of which, for
// the records of other steps.
func (x *execAction) Release(ctx context.Context, e activities.Entry) error {
	t, err := x.store.Open(ctx, e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	if err := x.backends.Release(ctx, e.Token); err != nil {
		return err
	}
	rec, _, err := readRecord(t)
	if err != nil && !target.IsDamaged(err) {
		return err
	}
	if err := x.copies(t, rec).Drop(); err != nil {
		return err
	}
	bulk, err := filepath.Glob(filepath.Join(t.Dir(), "*"))
	if err != nil {
		return err
	}
	for _, file := range bulk {
		if name := filepath.Base(file); strings.HasSuffix(name, ".gz") || strings.HasPrefix(name, "log-") {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return errors.Join(t.Drop(journal.Record), t.MarkReleased())
}
