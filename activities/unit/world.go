package unit

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the folder of the journal.
	State string `json:"state"`
	// Units are the units that steps may stop and start, with their commands.
	Units map[string]Unit `json:"units"`
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool `json:"-"`
}

type world struct {
	Config

	journal *journal.Journal
}

// New opens the world. The program must have called [Attend] first.
func New(c Config) (activities.World, error) {
	if !calls.Attended() {
		return activities.World{}, errors.New("unit: call unit.Attend() first thing in main (or TestMain)")
	}
	w, err := openWorld(c)
	if err != nil {
		return activities.World{}, err
	}
	opened := activities.World{
		Name:    "unit",
		Actions: []activities.Action{&health{w}},
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	for _, v := range verbs {
		opened.Actions = append(opened.Actions, &toggle{w, v})
	}
	if !c.LookOnly {
		opened.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
		opened.Records = journal.Records{Journal: w.journal}
	}
	return opened, nil
}

func openWorld(c Config) (*world, error) {
	w := &world{Config: c}
	if c.LookOnly {
		return w, nil
	}
	var err error
	w.journal, err = journal.Open(filepath.Join(c.State, "journal"))
	return w, err
}

// find finds a unit by its name.
func (w *world) find(name string) (Unit, error) {
	u, known := w.Units[name]
	if !known {
		return u, activities.Errorf(activities.Refused, "unit: this worker has no unit %q; unit.units in its config has %s",
			name,
			strings.Join(slices.Sorted(maps.Keys(w.Units)), ", "))
	}
	return u, nil
}

const keyPrefix = "unit:"

// job is one call of an action.
type job = isolated.Job[Config]

var calls = isolated.New("unwind-unit", do)

// Attend lets the program run each call of the world in a process of its own. Call it first in main
// and in TestMain: it returns at once, except in such a process.
func Attend() { calls.Attend() }
