package disk

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

var calls = isolated.New("unwind-disk", do)

// Attend lets the program run each call of the world, and what freezes a guest, in a process of its
// own. Call it first in main and in TestMain: it returns at once, except in such a process.
func Attend() {
	freezer.Attend(freeze) // which a call starts
	calls.Attend()
}

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
	op := isolated.Apply
	if a.spec.ReadOnly {
		op = isolated.Query
	}
	if err := a.call(ctx, job{Op: op, Entry: e, Step: s, Want: want}, &r); err != nil {
		return r, err
	}
	p, err := activities.DecodeParams[allParams](e.Params)
	if err != nil {
		return r, err
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{p.Disk})
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

// call is one call, in its process.
type call struct {
	*world
	job

	token *journal.Token
}

// do runs a job, in its process. It holds the token's lock while it works on an image, so that an
// undo can end it.
func do(ctx context.Context, j job) (any, error) {
	w, err := openWorld(j.Config)
	if err != nil {
		return nil, err
	}
	c := &call{world: w, job: j}
	if c.token, err = w.journal.Token(j.Entry.Token); err != nil {
		return nil, err
	}
	if j.Op == isolated.Undo {
		return c.undo(ctx)
	}
	if j.Op == isolated.Release {
		return nil, c.release(ctx)
	}
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch j.Op {
	case isolated.Plan:
		return c.plan(ctx)
	case isolated.Apply:
		return c.apply(ctx)
	case isolated.Observe:
		return c.observe(ctx)
	case isolated.Query:
		return c.look(ctx)
	}
	return nil, fmt.Errorf("there is no call %q", j.Op)
}

// reach reports the point after a side effect.
func (c *call) reach(what string) { point.Reach(c.Entry.Action + ":" + what) }

// checkApproved refuses a change that is not the one that was approved.
func (c *call) checkApproved(now activities.Digest) error {
	if c.Want == "" || c.Want == now {
		return nil
	}
	return activities.Errorf(activities.StaleApproval,
		"the change, or what the disk holds, is not what was approved; plan and approve it again")
}

func (c *call) plan(ctx context.Context) (change activities.Change, err error) {
	if err := c.token.CheckOpen(); err != nil {
		return change, err
	}
	switch c.Entry.Action {
	case keepName:
		return c.planKeep(ctx)
	case restoreName:
		return c.planRestore(ctx)
	}
	return c.planLook()
}

// apply does the step, unless an earlier attempt has. What that has started is ended first.
func (c *call) apply(ctx context.Context) (r activities.Result, err error) {
	if err := c.token.CheckOpen(); err != nil {
		return r, err
	}
	isolated.KillStarted(c.Entry.Token)
	if err := c.thawForgotten(); err != nil {
		return r, err
	}
	if c.Entry.Action == keepName {
		return c.keep(ctx)
	}
	return c.restore(ctx)
}

// look does a step that only reads.
func (c *call) look(ctx context.Context) (r activities.Result, err error) {
	if err := c.token.CheckOpen(); err != nil {
		return r, err
	}
	if c.Entry.Action == verifyName {
		return c.verify(ctx)
	}
	return c.compare(ctx)
}
