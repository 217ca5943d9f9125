package redis

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// compareAction is redis.compare. It changes nothing.
type compareAction struct{ *world }

// compareParams are the parameters of redis.compare.
type compareParams struct {
	Database   string `json:"database"       jsonschema:"the name of one of the worker's redis.databases"`
	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of redis.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

var compareSpec = activities.Spec{
	Name:    "redis.compare",
	Summary: "Says which keys differ between a checkpoint of a Redis database and another, or now.",
	Params:  activities.ParamsSchema[compareParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{
		"changed": "how many keys differ",
		"diff":    "these, a line each: + is new, - is gone, ~ is another; at most 8 KiB",
	},
	Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database"}},
	HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
	Undo: "It changes nothing.",
	Redo: "They are compared again.",
}

func (a *compareAction) Spec() activities.Spec { return compareSpec }

// Preflight implements activities.Preflighter.
func (a *compareAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[compareParams](o.With)
	if err != nil {
		return err
	}
	return a.preflightWhole(ctx, o, p)
}

// Plan implements activities.Action.
func (a *compareAction) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	return describeLook("compare "+p.Database+" as "+p.Checkpoint+" has it with "+p.other(), p.Database, s), err
}

// Apply compares.
func (a *compareAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	if err != nil {
		return r, err
	}
	c, err := a.openLook(ctx, e, s, p.Database, want)
	if err != nil {
		return r, err
	}
	defer c.end()
	changed, err := a.compareKept(c, p)
	if err != nil {
		return r, err
	}
	r = activities.Result{
		Summary: fmt.Sprintf("%s: %s different between %s and %s", p.Database, activities.CountOf(len(changed), "key"),
			p.Checkpoint, p.other()),
		Outputs: map[string]any{
			"changed": len(changed), "diff": activities.HeadDiff(changed.describe(), activities.MaxOutputs/2),
		},
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, c.scene(r))
}

// compareKept compares a checkpoint with another one, or with what is there now: what has expired
// since is nobody's change.
func (a *compareAction) compareKept(c *connection, p compareParams) (differences, error) {
	was, err := a.readKept(p.Checkpoint, c.origin())
	if err == nil {
		err = c.checkReadable(was)
	}
	if err != nil {
		return nil, err
	}
	point.Reach("redis.compare:read")
	if p.With == "" {
		is, now, err := c.capture()
		if err != nil {
			return nil, err
		}
		return c.compare(was.alive(now), is)
	}
	is, err := a.readKept(p.With, c.origin())
	if err == nil {
		err = c.checkReadable(is)
	}
	if err != nil {
		return nil, err
	}
	return c.compare(was, is)
}

// Undo implements activities.Action.
func (*compareAction) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

// Observe implements activities.Action.
func (*compareAction) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

// Release implements activities.Action.
func (*compareAction) Release(context.Context, activities.Entry) error { return nil }
