package disk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the folder of the journal.
	State string `json:"state"`
	// Roots are the folders in which disks may be used; anything else is refused.
	Roots []string `json:"roots"`
	// Machines are those whose disks may be checkpointed while they run, by name.
	Machines map[string]Machine `json:"machines,omitempty"`
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool `json:"-"`
}

// world is what the worker and the process of a call both need.
type world struct {
	Config

	roots   []string // without symlinks
	journal *journal.Journal
}

// New opens the world. The program must have called [Attend] first.
func New(c Config) (activities.World, error) {
	if !calls.Attended() {
		return activities.World{}, errors.New("disk: call disk.Attend() first thing in main (or TestMain)")
	}
	w, err := openWorld(c)
	if err != nil {
		return activities.World{}, err
	}
	opened := activities.World{
		Name: "disk", Actions: actionsOf(w),
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	if !c.LookOnly {
		opened.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
		opened.Records = journal.Records{Journal: w.journal}
	}
	return opened, nil
}

func openWorld(c Config) (*world, error) {
	if len(c.Roots) == 0 {
		return nil, errors.New("disk: Roots is empty; name the folders of the disks that steps may put back")
	}
	w := &world{Config: c}
	for _, path := range c.Roots {
		root, err := filepath.EvalSymlinks(path)
		if err == nil && !filepath.IsAbs(root) {
			err = errors.New("give an absolute path")
		}
		if err != nil {
			return nil, fmt.Errorf("disk: root %s: %w", path, err)
		}
		w.roots = append(w.roots, root)
	}
	if c.LookOnly {
		return w, nil
	}
	var err error
	w.journal, err = journal.Open(filepath.Join(c.State, "journal"))
	return w, err
}
