package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the folder of the journal and of what checkpoints keep.
	State string
	// Roots are the folders in which folders may be checkpointed and restored; anything else is
	// refused. A root itself is not: what is put back is staged beside a folder.
	Roots []string
	// Engine is the address of the Docker engine whose volumes and containers steps may keep and put
	// back. Defaults to none.
	Engine string
	// Others are the folders of the journals of other worlds of this host whose steps set containers
	// aside. Defaults to none.
	Others []string
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

type world struct {
	roots   []root
	engine  engine.Client // nil: none
	store   *snapshot.Store
	journal *journal.Journal
	// journals are this one and those of other worlds that set containers aside.
	journals aside.Journals
}

// root is an allowed folder.
type root struct {
	given, path string // as the config names it; without symlinks
	dir         *os.Root
}

// New opens the world.
func New(c Config) (activities.World, error) {
	if len(c.Roots) == 0 && c.Engine == "" {
		return activities.World{}, errors.New("folder: Roots is empty; name the folders whose folders steps may restore")
	}
	w := &world{}
	if c.Engine != "" {
		var err error
		if w.engine, err = engine.Connect(c.Engine); err != nil {
			return activities.World{}, err
		}
	}
	for _, given := range c.Roots {
		r := root{given: filepath.Clean(given)}
		var err error
		if r.path, err = filepath.EvalSymlinks(given); err == nil && !filepath.IsAbs(given) {
			err = errors.New("give an absolute path")
		}
		if err == nil {
			r.dir, err = os.OpenRoot(r.path)
		}
		if err != nil {
			return activities.World{}, fmt.Errorf("folder: root %s: %w", given, err)
		}
		w.roots = append(w.roots, r)
	}
	opened := activities.World{
		Name:    "folder",
		Actions: []activities.Action{&checkpoint{w}, &restore{w}, &verify{restore{w}}, &compare{verify{restore{w}}}},
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	if c.LookOnly {
		return opened, nil
	}
	var err error
	if w.journal, err = journal.Open(filepath.Join(c.State, "journal")); err != nil {
		return activities.World{}, err
	}
	if w.store, err = snapshot.Open(filepath.Join(c.State, "store")); err != nil {
		return activities.World{}, err
	}
	w.journals = append(aside.Journals{w.journal.Dir()}, c.Others...)
	opened.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
	opened.Records = journal.Records{Journal: w.journal}
	return opened, nil
}

// token opens the token of an entry.
func (w *world) token(e activities.Entry) (*journal.Token, error) {
	if err := w.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	return w.journal.Token(e.Token)
}

// openForward opens the token of a forward, which no other forward of it then runs, unless it came
// too late.
func (w *world) openForward(ctx context.Context, e activities.Entry) (t *journal.Token, unlock func(), err error) {
	if t, err = w.token(e); err != nil {
		return nil, nil, err
	}
	if unlock, err = t.Lock(ctx); err != nil {
		return nil, nil, err
	}
	if err = t.CheckOpen(); err != nil {
		unlock()
	}
	return t, unlock, err
}

// explain gives the errors of a store their types.
func explain(err error) error {
	var damaged *snapshot.DamageError
	var busy *snapshot.BusyError
	switch {
	case errors.As(err, &damaged):
		return activities.Errorf(activities.DamagedRecord, "%v", damaged)
	case errors.As(err, &busy):
		return activities.Errorf(activities.Refused, "path: %v; stop what does", busy)
	case errors.Is(err, fs.ErrPermission):
		return activities.Errorf(activities.ActionDenied, "%v; run the worker as root, or as the owner", err)
	}
	return err
}
