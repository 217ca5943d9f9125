package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// errUnlike says that rows are not all as the step left them, or would not all be as they were
// before.
var errUnlike = errors.New("not all rows are as the step left them")

// putBackAtOnce puts rows back without a search for drift before: it changes a row only in the
// version that the step left, each row that it should change has to be such a one, and the server
// says what it has stored. As long as a key has one row, that is all that a search sees. It reports
// false, and has done nothing, where anything is otherwise: the search says what that is.
func (c *connection) putBackAtOnce(r *record) (done bool, err error) {
	if err := c.Run("SAVEPOINT whole"); err != nil {
		return false, err
	}
	failed := c.changeBack(r)
	end := "RELEASE whole"
	if failed != nil {
		end = "ROLLBACK TO whole; RELEASE whole"
	}
	if err := c.Run(end); err != nil {
		return false, errors.Join(failed, err)
	}
	return failed == nil, nil
}

// changeBack does it.
func (c *connection) changeBack(r *record) error {
	var ids []uint32
	for _, t := range r.Tables {
		if err := c.Run("LOCK TABLE ONLY " + t.Quoted() + " IN ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		isKeyed, err := capture.IsKeyed(c.Connection, t)
		if err != nil || !isKeyed {
			return errors.Join(err, errUnlike)
		}
		ids = append(ids, t.OID)
	}
	// what these call may change rows that have been compared
	conditional, err := capture.FindConditional(c.Connection, ids)
	if err != nil || len(conditional) > 0 {
		return errors.Join(err, errUnlike)
	}
	return capture.WithoutTriggers(c.Connection, r.Tables, func() error {
		if err := c.Canonically(func() error { return c.changeRowsAlone(r, ids) }); err != nil {
			return err
		}
		if err := c.checkForeignKeys(r.N, r.Tables, false); err != nil {
			return err
		}
		for _, t := range r.Tables {
			if err := c.passOn(r.N, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// changeRowsAlone changes the rows back, and nothing else in their tables: what computes a column or
// an index may call a function that changes rows which have been compared.
func (c *connection) changeRowsAlone(r *record, ids []uint32) error {
	before, err := c.countChanges(ids)
	if err == nil {
		err = c.changeRows(r)
	}
	if err != nil {
		return err
	}
	after, err := c.countChanges(ids)
	if err == nil && after-before != r.Rows {
		err = errUnlike
	}
	return err
}

// countChanges counts the changes of rows that the session has made in tables.
func (c *connection) countChanges(ids []uint32) (n int64, err error) {
	return n, c.Scan(`SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(id) + pg_stat_get_xact_tuples_updated(id)
		+ pg_stat_get_xact_tuples_deleted(id)), 0)::bigint FROM unnest($1::oid[]) id`, []any{ids}, &n)
}

// changeRows removes the rows that came, then gives those that changed their old values, and
// inserts those that went.
func (c *connection) changeRows(r *record) error {
	for _, t := range r.Tables {
		if err := c.changeExactly(r.N, t, t.Came, "old IS NULL", "new",
			fmt.Sprintf("DELETE FROM ONLY %s q USING e WHERE %s AND q.xmin = e.version", t.Quoted(), t.On("e.r"))); err != nil {
			return err
		}
	}
	reach("removed")
	for _, t := range r.Tables {
		var names, values, sets []string
		for _, column := range t.Columns {
			name := server.Quote(column.Name)
			if column.Generated {
				continue
			}
			names, values = append(names, name), append(values, "(e.r)."+name)
			if !slices.Contains(t.Key, column.Name) { // a row that has changed has its key
				sets = append(sets, fmt.Sprintf("%s = (e.r).%[1]s", name))
			}
		}
		if t.Changed > 0 && sets == nil {
			return errUnlike
		}
		if err := c.changeExactly(r.N, t, t.Changed, "old IS NOT NULL AND new IS NOT NULL", "old",
			fmt.Sprintf("UPDATE ONLY %s q SET %s FROM e WHERE %s AND q.xmin = e.version", t.Quoted(), strings.Join(sets, ", "),
				t.On("e.r"))); err != nil {
			return err
		}
		if err := c.changeExactly(r.N, t, t.Went, "new IS NULL", "old",
			fmt.Sprintf("INSERT INTO %s AS q (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM e",
				t.Quoted(), strings.Join(names, ", "), strings.Join(values, ", "))); err != nil {
			return err
		}
	}
	return nil
}

// changeExactly runs a statement for some of the events of a table, e, each with its row r before
// or after. It has to change as many rows as there are such events, and they have to be these rows.
func (c *connection) changeExactly(n int64, t *capture.Table, want int64, where, image, sql string) error {
	if want == 0 {
		return nil
	}
	var exact bool
	err := c.Scan(
		fmt.Sprintf(`WITH e AS (SELECT %[1]s AS image, %[1]s::%[2]s AS r, version FROM unwind.event WHERE record = $1
			AND relid = $2 AND %[3]s OFFSET 0),
		changed AS (%[4]s RETURNING (q.*)::text AS image)
		SELECT count(*) = $3 AND sum(hashtextextended(image, 0)) = (SELECT sum(hashtextextended(%[1]s, 0)) FROM unwind.event
		WHERE record = $1 AND relid = $2 AND %[3]s) FROM changed`,
			image, t.Quoted(), where, sql), []any{n, t.OID, want}, &exact)
	if err == nil && !exact {
		err = errUnlike
	}
	return err
}
