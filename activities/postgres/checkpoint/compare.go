package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// compare is postgres.compare. It changes nothing.
type compare struct{ verify }

type compareParams struct {
	Database   string `json:"database"       jsonschema:"the name of one of the worker's postgres.databases"`
	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of postgres.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

var compareSpec = activities.Spec{
	Name: "postgres.compare",
	Summary: "Says what differs between a checkpoint of a PostgreSQL database and another, or now: objects, and rows " +
		"by table.",
	Params: activities.ParamsSchema[compareParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{
		"changed": "how many objects, tables and positions of sequences differ",
		"diff":    "these, a line each: + is new, - is gone, ~ is another",
		"digest":  "a digest of all that it was compared with",
	},
	Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, HostBound: true, Preflights: true, ReadOnly: true,
	Risk: activities.Low, Strategy: activities.NoUndo, Undo: "it changes nothing.",
}

// Spec implements activities.Action.
func (*compare) Spec() activities.Spec { return compareSpec }

// Preflight implements activities.Preflighter.
func (a *compare) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[compareParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	for name, is := range map[string]string{"checkpoint": p.Checkpoint, "with": p.With} {
		if is != "" && !o.Awaits(name) && !isName(is) {
			problems = append(problems, refuseName(is))
		}
	}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database))...)
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

// Plan implements activities.Action.
func (a *compare) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	return activities.Change{
		Summary:  fmt.Sprintf("compare the database %s as %s has it with %s", p.Database, p.Checkpoint, p.other()),
		Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low, Unchanged: true,
		Keys: []string{"postgres:" + p.Database}, Digest: activities.DigestOf(s.With),
	}, err
}

// Apply implements activities.Action.
func (a *compare) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "it is another comparison than the one that was approved")
	}
	c, err := a.Rows.Open(ctx, e, p.Database, server.LookName)
	if err != nil {
		return r, err
	}
	defer c.Close()
	application := server.LookName + " " + e.Token
	was, err := a.contentsOf(c, p.Checkpoint, application)
	if err != nil {
		return r, err
	}
	var is manifest
	if p.With != "" {
		is, err = a.contentsOf(c, p.With, application)
	} else {
		var name string
		if name, _, err = whoAmI(c); err == nil {
			is, err = readDatabase(c, name, application)
		}
	}
	if err != nil {
		return r, err
	}
	return activities.Result{
		Summary: fmt.Sprintf("database %s: %s different between %s and %s", p.Database,
			activities.CountOf(len(was.differs(is)), "place"), p.Checkpoint, p.other()),
		Outputs: map[string]any{"changed": len(was.differs(is)), "diff": activities.HeadDiff(was.diff(is),
			activities.MaxOutputs/2), "digest": is.exact()},
	}, nil
}

func (a *compare) contentsOf(c *server.Connection, checkpoint, application string) (manifest, error) {
	i, err := a.find(c, checkpoint, application)
	if err != nil {
		return nil, err
	}
	return i.read()
}
