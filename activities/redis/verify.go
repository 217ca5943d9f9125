package redis

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// verifyAction is redis.verify. It changes nothing.
type verifyAction struct{ *world }

var verifySpec = activities.Spec{
	Name: "redis.verify",
	Summary: "Reads all of a checkpoint of a Redis database, and fails where it is damaged or the server could not take " +
		"it.",
	Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"database"},
	Outputs:   map[string]string{"keys": "how many keys the checkpoint has"},
	Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database"}},
	HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
	Undo: "It changes nothing.",
	Redo: "The checkpoint is read again.",
}

func (a *verifyAction) Spec() activities.Spec { return verifySpec }

// Preflight implements activities.Preflighter.
func (a *verifyAction) Preflight(ctx context.Context, o activities.Outlook) error {
	return (&restoreAction{a.world}).Preflight(ctx, o)
}

// Plan implements activities.Action.
func (a *verifyAction) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	return describeLook("verify checkpoint "+p.Checkpoint+" of "+p.Database, p.Database, s), err
}

// describeLook is the plan of a step that only looks.
func describeLook(summary, database string, s activities.Step) activities.Change {
	return activities.Change{Summary: summary, Strategy: activities.NoUndo, Undo: "it changes nothing",
		Risk: activities.Low, Unchanged: true, Keys: []string{keyPrefix + database}, Digest: activities.DigestOf(s.With)}
}

// Apply reads the checkpoint.
func (a *verifyAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	c, err := a.openLook(ctx, e, s, p.Database, want)
	if err != nil {
		return r, err
	}
	defer c.end()
	k, err := a.readKept(p.Checkpoint, c.origin())
	if err == nil {
		point.Reach("redis.verify:read")
		err = c.checkReadable(k)
	}
	if err != nil {
		return r, err
	}
	r = activities.Result{
		Summary: "checkpoint " + p.Checkpoint + " of " + p.Database + " is whole: " + activities.CountOf(len(k), "key"),
		Outputs: map[string]any{"keys": len(k)},
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, c.scene(r))
}

// openLook connects for a step that only looks, if it is the one that was approved.
func (w *world) openLook(ctx context.Context, e activities.Entry, s activities.Step, database string,
	want activities.Digest) (*connection, error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return nil, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return nil, activities.Errorf(activities.StaleApproval, "it is another look than the one that was approved")
	}
	if _, err := w.openToken(e); err != nil {
		return nil, err
	}
	return w.openWhole(ctx, e, database)
}

// Undo implements activities.Action.
func (*verifyAction) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

// Observe implements activities.Action.
func (*verifyAction) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

// Release implements activities.Action.
func (*verifyAction) Release(context.Context, activities.Entry) error { return nil }
