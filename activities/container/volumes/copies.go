package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// Copies are those that a step keeps of the volumes of its container, in the folder of its token.
type Copies struct {
	Engine  Engine
	Token   *journal.Token
	Volumes []Volume
}

func (c Copies) dir() string { return filepath.Join(c.Token.Dir(), "volumes") }

// load is what was kept of a volume, and the store that has it.
func (c Copies) load(v Volume) (*snapshot.Store, snapshot.Content, error) {
	store, err := snapshot.Open(c.dir())
	if err != nil {
		return nil, nil, err
	}
	kept, err := store.Load(v.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = &snapshot.DamageError{Why: "its copy is gone from " + c.dir()}
	case err == nil && kept.Content.Digest() != v.Kept:
		err = &snapshot.DamageError{Why: "its copy in " + c.dir() + " is another than the step kept"}
	}
	return store, kept.Content, err
}

// stage is a folder beside a volume, on its filesystem and which nobody sees, of the token's own.
func (c Copies) stage(v Volume) string {
	return filepath.Join(filepath.Dir(v.Root), "unwind-"+filepath.Base(c.Token.Dir()))
}

// Keep copies the volumes of a step whose record is yet to be made, adds what is in the copies to
// manifests, and notes in Volumes what they take.
func (c Copies) Keep(ctx context.Context, into ...manifest.Manifest) error {
	if len(c.Volumes) == 0 {
		return nil
	}
	if err := c.Token.Make(); err != nil {
		return err
	}
	store, err := snapshot.Open(c.dir())
	if err != nil {
		return err
	}
	for i, v := range c.Volumes {
		progress, stop := v.showProgress(ctx)
		content, err := store.Keep(ctx, snapshot.Root{Path: v.Root},
			snapshot.Keeping{Name: v.Name, Look: snapshot.Look{Progress: progress}})
		stop()
		if busy := (*snapshot.BusyError)(nil); errors.As(err, &busy) {
			return activities.Errorf(activities.Refused, "volumes: %v; stop what does, or %s", busy, wayOut)
		}
		if err != nil {
			return fmt.Errorf("keeping a copy of volume %s: %w", v.Name, err)
		}
		for _, m := range into {
			if m != nil {
				v.addContent(m, content)
			}
		}
		c.Volumes[i].Files, c.Volumes[i].Bytes, c.Volumes[i].Kept = content.Paths(), content.Bytes(), content.Digest()
	}
	point.Reach("container.exec:volumes-kept")
	return nil
}

// Drop lets go of all that the token has of volumes.
func (c Copies) Drop() error {
	return errors.Join(os.RemoveAll(c.dir()), c.clearStages())
}

func (c Copies) clearStages() (err error) {
	for _, v := range c.Volumes {
		err = errors.Join(err, (snapshot.Restore{Stage: c.stage(v)}).Clear())
	}
	return err
}

// Document is the name of the document which says that a turn has brought the volumes back.
func Document(turn string) string { return "volumes-" + turn }

type restoration struct {
	Differs []string `json:"differs,omitempty"`
}

// Restore brings the volumes back, once for each turn, and says what of them is not as before. In
// is the id of the container that the step's has become. Seen is what may be overwritten; nil: all.
func (c Copies) Restore(ctx context.Context, turn, in string, seen manifest.Manifest) (differs []string, err error) {
	unlock, err := c.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var done restoration
	found, err := c.Token.Read(Document(turn), &done)
	if err != nil {
		return nil, err
	}
	if !found {
		if done.Differs, err = c.restoreAll(ctx, turn, in, seen); err != nil {
			return nil, err
		}
		if _, err := c.Token.Create(Document(turn), &done); err != nil {
			return nil, err
		}
		point.Reach("container.exec:volumes-restored")
	}
	return done.Differs, c.clearStages() // from here on no other call does more
}

// turnPatience is how long a call waits for another that is restoring the same volumes. One that is
// stopped holds nobody up: it is overtaken, and then does no more.
const turnPatience = 5 * time.Second

// awaitTurn waits for another call's turn to be over.
func (c Copies) awaitTurn(ctx context.Context) (unlock func(), err error) {
	patient, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	lock, err := filelock.Acquire(patient, filepath.Join(c.Token.Dir(), "volumes.lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return func() {}, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

// CheckWriters is an error where a container other than the one with id in may be writing to what
// is brought back.
func (c Copies) CheckWriters(ctx context.Context, in string) error {
	who, err := findWriter(ctx, c.Engine, c.Volumes, in)
	if err == nil && who != "" {
		err = activities.Errorf(activities.ActionFailed,
			"volumes: %s: stop it, for it may be writing to what is brought back", who)
	}
	return err
}

// CheckCopies is DamagedRecord where a copy is not as it was kept.
func (c Copies) CheckCopies(ctx context.Context) error {
	for _, v := range c.Volumes {
		store, content, err := c.load(v)
		if err == nil {
			progress, stop := v.showProgress(ctx)
			err = store.Check(ctx, content, progress)
			stop()
		}
		if err != nil {
			return v.explain(err)
		}
	}
	return nil
}

// explain names the volume in an error of its restoration.
func (v Volume) explain(err error) error {
	if damaged := (*snapshot.DamageError)(nil); errors.As(err, &damaged) {
		return activities.Errorf(activities.DamagedRecord, "volume %s: %v", v.Name, damaged)
	}
	return fmt.Errorf("volume %s: %w", v.Name, err)
}

func (c Copies) restoreAll(ctx context.Context, turn, in string, seen manifest.Manifest) (differs []string, err error) {
	if err := c.CheckWriters(ctx, in); err != nil {
		return nil, err
	}
	for _, v := range c.Volumes {
		if _, err := os.Lstat(v.Root); errors.Is(err, fs.ErrNotExist) {
			return nil, activities.Errorf(activities.ActionFailed,
				"volume %s is gone; docker volume create %[1]s makes it anew, and what it held is put into it", v.Name)
		}
		r := snapshot.Restore{
			Root: snapshot.Root{Path: v.Root}, Stage: c.stage(v), Over: func() error { return c.checkTurn(turn) },
		}
		if r.From, r.Want, err = c.load(v); err != nil {
			return nil, v.explain(err)
		}
		if seen != nil {
			if r.Seen, err = v.contentIn(seen); err != nil {
				return nil, err
			}
		}
		progress, stop := v.showProgress(ctx)
		r.Progress = progress
		left, err := r.Run(ctx)
		stop()
		if err != nil {
			return nil, v.explain(err)
		}
		for _, at := range left {
			differs = append(differs, "~ "+v.path(at))
		}
	}
	return differs, nil
}

// checkTurn is an error where a turn has brought the volumes back already, or may not any more.
func (c Copies) checkTurn(turn string) error {
	if turn != checkpoint.UndoTurn {
		return c.Token.CheckOpen()
	}
	var done restoration
	found, err := c.Token.Read(Document(turn), &done)
	if found {
		err = activities.Errorf(activities.ActionFailed, "another call has brought the volumes back")
	}
	return err
}
