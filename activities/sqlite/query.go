package sqlite

import (
	"cmp"
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// onlyReads reports whether the call is of an action that only reads, and keeps no record.
func (c *call) onlyReads() bool {
	switch c.Entry.Action {
	case queryName, verifyName, compareName:
		return true
	}
	return false
}

// look does what an action does that only reads.
func (c *call) look(ctx context.Context) (activities.Result, error) {
	if err := c.token.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	switch c.Entry.Action {
	case verifyName:
		return c.verify(ctx)
	case compareName:
		return c.compare(ctx)
	}
	return c.query(ctx)
}

// planQuery returns a change that changes nothing.
func (c *call) planQuery() (change activities.Change, err error) {
	p, err := decodeParams[queryParams](c.Step.With)
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Database)
	return activities.Change{
		Summary: "read " + path, Diff: p.SQL, Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low,
		Unchanged: true,
		Keys:      []string{keyPrefix + path}, Digest: digestQuery(c.Step.With, path),
	}, err
}

func digestQuery(with []byte, path string) activities.Digest {
	return activities.DigestOf(with, []byte(path))
}

// query reads, on a connection that cannot write.
func (c *call) query(ctx context.Context) (result activities.Result, err error) {
	p, err := decodeParams[queryParams](c.Step.With)
	if err != nil {
		return result, err
	}
	path, err := c.locateThere(p.Database)
	if err != nil {
		return result, err
	}
	if c.Want != "" && c.Want != digestQuery(c.Step.With, path) {
		return result,
			activities.Errorf(activities.StaleApproval, "the query is not the one that was approved; plan and approve it again")
	}
	d, err := c.open(path)
	if err != nil {
		return result, err
	}
	defer d.Close()
	if err := d.run("PRAGMA query_only = ON"); err != nil {
		return result, err
	}
	c.reach("opened")
	rows, first, err := d.read(p)
	if err != nil {
		return result, explain(path, err)
	}
	return activities.Result{
		Summary: path + ": " + activities.CountOf(len(rows), "row"),
		Outputs: map[string]any{"rows": rows, "count": len(rows), "value": first},
	}, c.runQueries(ctx, d)
}

const defaultLimit = 100

// read reads the rows of a query, and the first value.
func (d *database) read(p queryParams) (rows []map[string]any, first any, err error) {
	disarm := d.armToRead()
	defer disarm()
	q, trailing, err := d.PrepareTransient(p.SQL)
	if d.denied != "" {
		err = activities.Errorf(activities.Refused, "%s", d.denied)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = q.Finalize() }() // the same error as that of the last step
	if strings.TrimSpace(p.SQL[len(p.SQL)-trailing:]) != "" {
		return nil, nil, activities.Errorf(activities.Refused, "sql: give one statement; there are several")
	}
	if err := bind(q, p.Params); err != nil {
		return nil, nil, err
	}
	rows = []map[string]any{}
	limit := cmp.Or(p.Limit, defaultLimit)
	for {
		more, err := q.Step()
		if err != nil || !more {
			return rows, first, err
		}
		if len(rows) == limit {
			return nil, nil,
				activities.Errorf(activities.Refused, "the query returns more than %s; add LIMIT to it, or raise limit",
					activities.CountOf(limit, "row"))
		}
		row, columns := output(q)
		if len(rows) == 0 && len(columns) > 0 {
			first = row[columns[0]]
		}
		rows = append(rows, row)
	}
}
