package checkpoint

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// verify is postgres.verify. It changes nothing.
type verify struct{ *Checkpoints }

var verifySpec = activities.Spec{
	Name: "postgres.verify",
	Summary: "Reads all of a checkpoint of a PostgreSQL database, and fails where it is damaged or could not be put " +
		"back.",
	Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{"rows": "how many rows it has", "digest": "what it contains, as a digest"},
	Keys:    []activities.Key{{Prefix: "postgres:", Param: "database"}}, HostBound: true, Preflights: true, ReadOnly: true,
	Risk: activities.Low, Strategy: activities.NoUndo, Undo: "it changes nothing.",
}

// Spec implements activities.Action.
func (*verify) Spec() activities.Spec { return verifySpec }

// Preflight implements activities.Preflighter.
func (a *verify) Preflight(ctx context.Context, o activities.Outlook) error {
	return (&restore{a.Checkpoints}).Preflight(ctx, o)
}

// Plan implements activities.Action.
func (a *verify) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	return activities.Change{
		Summary: "verify checkpoint " + p.Checkpoint + " of the database " + p.Database, Strategy: activities.NoUndo,
		Undo: "it changes nothing", Risk: activities.Low, Unchanged: true, Keys: []string{"postgres:" + p.Database},
		Digest: activities.DigestOf(s.With),
	}, err
}

// Apply implements activities.Action.
func (a *verify) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "it is another checkpoint than the one that was approved")
	}
	c, err := a.Rows.Open(ctx, e, p.Database, server.LookName)
	if err != nil {
		return r, err
	}
	defer c.Close()
	if _, err := a.checkPossible(c); err != nil {
		return r, err
	}
	i, err := a.find(c, p.Checkpoint, server.LookName+" "+e.Token)
	if err != nil {
		return r, err
	}
	is, err := i.verify()
	if err != nil {
		return r, err
	}
	return activities.Result{
		Summary: "checkpoint " + p.Checkpoint + " of the database " + p.Database + " is whole: " +
			activities.CountOf(is.rows(), "row"),
		Outputs: map[string]any{"rows": is.rows(), "digest": string(is.digest())},
	}, nil
}

// Undo implements activities.Action.
func (*verify) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

// Observe implements activities.Action.
func (*verify) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

// Release implements activities.Action.
func (*verify) Release(context.Context, activities.Entry) error { return nil }
