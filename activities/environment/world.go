package environment

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the folder of the journal.
	State string
	// Names are the environments that steps may use; "*" is any. Without, the world has only what the
	// rollbacks of environments themselves need.
	Names []string
	// Keeper keeps them.
	Keeper Keeper
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

type world struct {
	Config

	journal *journal.Journal
}

// New opens the world.
func New(c Config) (activities.World, error) {
	w := &world{Config: c}
	opened := activities.World{
		Name:    "environment",
		Actions: []activities.Action{&tasks{w}},
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	if len(c.Names) > 0 {
		opened.Actions = append(opened.Actions, &checkpoint{w}, &rollback{w})
	}
	if c.LookOnly {
		return opened, nil
	}
	var err error
	if w.journal, err = journal.Open(filepath.Join(c.State, "journal")); err != nil {
		return opened, err
	}
	opened.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
	opened.Records = records{kept{Journal: w.journal}, w}
	return opened, nil
}

// token opens the token of an entry.
func (w *world) token(e activities.Entry) (*journal.Token, error) {
	if err := w.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	return w.journal.Token(e.Token)
}

// Admit implements Fence.
func (w *world) Admit(token string, undoing bool) error {
	t, err := w.journal.Token(token)
	if err != nil {
		return err
	}
	recorded, err := t.Read(journal.Record, new(record)) // its second name counts
	if err != nil {
		return err
	}
	if !recorded {
		return activities.Errorf(activities.Fenced, "the journal on this host has no record of a step with token %s", token)
	}
	if !undoing {
		return t.CheckOpen()
	}
	fate, err := t.Fate()
	if err != nil {
		return err
	}
	over, err := t.Has(journal.Outcome)
	if err == nil && (over || fate != journal.Undoing) {
		err = activities.Errorf(activities.Fenced, "the undo of token %s is over, or has not begun", token)
	}
	return err
}

// checkName refuses an environment that the worker's config does not let steps use.
func (w *world) checkName(name string) error {
	if slices.Contains(w.Names, "*") || slices.Contains(w.Names, name) {
		return nil
	}
	return activities.Errorf(activities.Refused,
		"environment: steps may not use %q on this worker; environment.names in its config has %s", name,
		strings.Join(w.Names, ", "))
}

// look shows an environment that a step on a host is to use.
func (w *world) look(ctx context.Context, name, host string) (Environment, error) {
	if err := w.checkName(name); err != nil {
		return Environment{}, err
	}
	v, err := w.Keeper.Look(ctx, name)
	switch {
	case err != nil:
		return v, err
	case v.Gone:
		return v, activities.RefuseCurrent(key(name), "environment: there is no %q; `starter env list` lists them", name)
	case host != "" && v.Host != host:
		return v, activities.Errorf(activities.Refused,
			"environment: %s is on host %s, and the step on %s; write `on: %s` into the step", name, v.Host, host, v.Host)
	}
	return v, nil
}
