package sqlite

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// job is one call of an action.
type job = isolated.Job[Config]

var calls = isolated.New("unwind-sqlite", do, "SQLITE_TMPDIR")

// Attend lets the program run each call of the world in a process of its own. Call it first in main
// and in TestMain: it returns at once, except in such a process.
func Attend() { calls.Attend() }

// action runs every call in a process of its own: see package isolated.
type action struct {
	*world

	spec activities.Spec
}

func (a *action) Spec() activities.Spec { return a.spec }

func (a *action) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change, err error) {
	return c, a.call(ctx, job{Op: isolated.Plan, Entry: e, Step: s}, &c)
}

func (a *action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	if s.Checks, err = placeChecks(s.Checks); err != nil {
		return r, err
	}
	op := isolated.Apply
	if a.spec.ReadOnly {
		op = isolated.Query
	}
	if err := a.call(ctx, job{Op: op, Entry: e, Step: s, Want: want}, &r); err != nil {
		return r, err
	}
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return r, err
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{a.world, p.Database})
}

func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone, err error) {
	return u, a.call(ctx, job{Op: isolated.Undo, Entry: e, Decision: d}, &u)
}

func (a *action) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	return o, a.call(ctx, job{Op: isolated.Observe, Entry: e}, &o)
}

func (a *action) Release(ctx context.Context, e activities.Entry) error {
	return a.call(ctx, job{Op: isolated.Release, Entry: e}, nil)
}

func (a *action) call(ctx context.Context, j job, result any) error {
	j.Config = a.Config
	return calls.Run(ctx, a.journal, j, result)
}

// do runs a job, in its process.
func do(ctx context.Context, j job) (any, error) {
	w, err := openWorld(j.Config)
	if err != nil {
		return nil, err
	}
	t, err := w.journal.Token(j.Entry.Token)
	if err != nil {
		return nil, err
	}
	c := &call{world: w, job: j, token: t}
	switch j.Op {
	case isolated.Plan:
		return c.plan(ctx)
	case isolated.Apply:
		return c.apply(ctx)
	case isolated.Undo:
		return c.undo(ctx)
	case isolated.Observe:
		return c.observe(ctx)
	case isolated.Release:
		return nil, c.release(ctx)
	case isolated.Query:
		return c.look(ctx)
	}
	return nil, fmt.Errorf("there is no call %q", j.Op)
}

// call is one call, in its process.
type call struct {
	*world
	job

	token *journal.Token
}

// reach reports the point after a side effect.
func (c *call) reach(what string) { point.Reach(c.Entry.Action + ":" + what) }
