package sqlite

import (
	"context"
	"errors"
	"os"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
)

// sqlite.verify reads all of a checkpoint. It changes nothing.

func verifySpec() activities.Spec {
	return activities.Spec{
		Name:    verifyName,
		Summary: "Reads all of a checkpoint of an SQLite database, and fails where it is damaged.",
		Params:  activities.ParamsSchema[restoreParams](), UndoParams: []string{"database"},
		Outputs:   map[string]string{"bytes": "how many bytes the checkpoint takes"},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "The checkpoint is read again.",
	}
}

// lookParams are the parameters of sqlite.verify or sqlite.compare.
func (c *call) lookParams() (compareParams, error) {
	if c.Entry.Action == compareName {
		return decodeParams[compareParams](c.Step.With)
	}
	p, err := decodeParams[restoreParams](c.Step.With)
	return compareParams{Database: p.Database, Checkpoint: p.Checkpoint}, err
}

func (c *call) planLook() (change activities.Change, err error) {
	p, err := c.lookParams()
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Database)
	if err != nil {
		return change, err
	}
	summary := "verify checkpoint " + p.Checkpoint + " of " + path
	if c.Entry.Action == compareName {
		summary = "compare " + path + " as " + p.Checkpoint + " has it with " + p.other()
	}
	return activities.Change{
		Summary: summary, Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low, Unchanged: true,
		Keys: []string{keyPrefix + path}, Digest: digestQuery(c.Step.With, path),
	}, nil
}

// beginLook returns the parameters of a look that is the one that was approved, and the path of the
// database.
func (c *call) beginLook() (p compareParams, path string, err error) {
	if p, err = c.lookParams(); err == nil {
		path, err = c.locateThere(p.Database)
	}
	if err == nil {
		err = c.checkApproved(digestQuery(c.Step.With, path))
	}
	return p, path, err
}

func (c *call) verify(ctx context.Context) (result activities.Result, err error) {
	p, path, err := c.beginLook()
	if err != nil {
		return result, err
	}
	d, err := c.openKept(p.Checkpoint, path)
	if err != nil {
		return result, err
	}
	defer d.Close()
	c.reach("opened")
	if err := d.checkIntegrity(); err != nil {
		return result, err
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return result, err
	}
	return activities.Result{
		Summary: "checkpoint " + p.Checkpoint + " of " + path + " is whole: " + activities.CountOf(info.Size(), "byte"),
		Outputs: map[string]any{"bytes": info.Size()},
	}, c.runQueries(ctx, d)
}

// checkIntegrity is DamagedRecord for a copy that SQLite itself finds to be damaged: so was the
// database when it was copied.
func (d *database) checkIntegrity() error {
	const shown = 5
	var problems []string
	err := run(d.Conn, "PRAGMA integrity_check(5)", nil, func(q *sqlite.Stmt) error {
		problems = append(problems, q.ColumnText(0))
		return nil
	})
	if err == nil && len(problems) == 1 && problems[0] == "ok" {
		return nil
	}
	if err == nil {
		err = errors.New(strings.Join(problems[:min(shown, len(problems))], "; "))
	}
	return damaged(d.path, err)
}
