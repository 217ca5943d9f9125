package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// sqlite.compare says what differs. It changes nothing.

// compareParams are the parameters of sqlite.compare.
type compareParams struct {
	Database   string `json:"database"       jsonschema:"the absolute path of the database file, below one of the worker's sqlite.roots"`
	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of sqlite.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

func compareSpec() activities.Spec {
	return activities.Spec{
		Name: compareName,
		Summary: "Says what differs between a checkpoint of an SQLite database and another, or now: objects, and rows by " +
			"table.",
		Params: activities.ParamsSchema[compareParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"changed": "how many tables, other objects and settings differ",
			"diff":    "these, a line each: + is new, - is gone, ~ is another; at most 8 KiB",
			"digest":  "a digest of all that it was compared with",
		},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "They are compared again.",
	}
}

func (c *call) compare(ctx context.Context) (result activities.Result, err error) {
	p, path, err := c.beginLook()
	if err != nil {
		return result, err
	}
	was, err := c.readKept(p.Checkpoint, path, func(d *database) error { return c.runQueries(ctx, d) })
	if err != nil {
		return result, err
	}
	c.reach("opened")
	var is content
	if p.With != "" {
		is, err = c.readKept(p.With, path, func(*database) error { return nil })
	} else {
		is, err = c.contentNow(path)
	}
	if err != nil {
		return result, err
	}
	lines := compareContent(was, is)
	return activities.Result{
		Summary: fmt.Sprintf("%s: %s different between %s and %s", path, activities.CountOf(len(lines), "place"),
			p.Checkpoint, p.other()),
		Outputs: map[string]any{
			"changed": len(lines), "diff": activities.HeadDiff(strings.Join(lines, "\n"), activities.MaxOutputs/2),
			"digest": activities.DigestOf([]byte(is.digest())),
		},
	}, nil
}

// readKept reads the whole of a checkpoint, if the check finds nothing wrong with it.
func (c *call) readKept(name, path string, check func(*database) error) (content, error) {
	d, err := c.openKept(name, path)
	if err != nil {
		return content{}, err
	}
	defer d.Close()
	if err := check(d); err != nil {
		return content{}, err
	}
	has, err := d.content()
	return has, explain(d.path, err)
}
