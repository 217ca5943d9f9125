package postgres

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// A database that was restored from a checkpoint is another one for its server, and goes on with
// the journal of the one that it replaces: unwind.former has the ids of those. A row counts only in
// the database that it was written for, and not in a copy of it.
const formerSchema = `CREATE TABLE IF NOT EXISTS unwind.former (id text NOT NULL, now text NOT NULL, PRIMARY KEY (id,
	now));`

// continues reports whether the database has taken the place of the one with this id.
func (c *connection) continues(id string) (does bool, err error) {
	var there bool
	if err := c.Scan("SELECT to_regclass('unwind.former') IS NOT NULL", nil, &there); err != nil || !there {
		return false, err
	}
	return does, c.Scan("SELECT EXISTS (SELECT FROM unwind.former WHERE id = $1 AND now = $2)", []any{id, c.ID}, &does)
}

// takeOver makes the restored database go on with the journal of the one that it replaces, c: the
// records are copied as they are now, since what they say of the time after the checkpoint has
// happened, and they learn by which numbers the server knows tables and rows here.
func (c *connection) takeOver(restored *connection) error {
	there, err := c.hasJournal()
	if err != nil {
		return err
	}
	return restored.InTransaction(func() error {
		if err := restored.Run(Schema + formerSchema + "TRUNCATE unwind.record, unwind.change, unwind.former"); err != nil {
			return err
		}
		if there {
			if err := c.copyJournal(restored); err != nil {
				return err
			}
		}
		if err := restored.Run("INSERT INTO unwind.former VALUES ($1, $2) ON CONFLICT DO NOTHING", c.ID,
			restored.ID); err != nil {
			return err
		}
		if err := restored.renumber(func(t *capture.Table) (uint32, error) {
			is, err := capture.Find(restored.Connection, t.Quoted())
			if err != nil || is == nil {
				return 0, err
			}
			return is.OID, nil
		}); err != nil {
			return err
		}
		return capture.Renew(restored.Connection)
	})
}

// copyJournal copies the rows of the journal.
func (c *connection) copyJournal(to *connection) error {
	var columns string
	if err := c.Scan(`SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'unwind.record'::regclass AND attnum > 0 AND NOT attisdropped`, nil, &columns); err != nil {
		return err
	}
	const change = "record, relid, old, new, "
	for _, each := range [][2]string{
		{"SELECT " + columns + " FROM unwind.record", "unwind.record (" + columns + ")"},
		// A change of the row's own transaction has no version: the number of that is lost with the copy.
		{"SELECT " + change +
			"coalesce(version, array_fill(xmin, ARRAY[cardinality(coalesce(old, new))])) FROM unwind.change",
			"unwind.change (" + change + "version)"},
	} {
		if err := c.copyRows(to, each[0], each[1]); err != nil {
			return err
		}
	}
	var formers bool
	err := c.Scan("SELECT to_regclass('unwind.former') IS NOT NULL", nil, &formers)
	if err == nil && formers {
		err = c.copyRows(to, fmt.Sprintf("SELECT id, '%s' FROM unwind.former WHERE now = '%s'", to.ID, c.ID),
			"unwind.former (id, now)")
	}
	if err != nil {
		return err
	}
	return to.Run(
		"SELECT setval(pg_get_serial_sequence('unwind.record', 'n'), (SELECT coalesce(max(n), 0) + 1 FROM " +
			"unwind.record), false)")
}

func (c *connection) copyRows(to *connection, query, into string) error {
	out, in := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := c.PgConn().CopyTo(c.Ctx, in, "COPY ("+query+") TO STDOUT")
		in.CloseWithError(err) // nil: the end
		read <- err
	}()
	_, err := to.PgConn().CopyFrom(to.Ctx, out, "COPY "+into+" FROM STDIN")
	out.CloseWithError(err)
	if failed := <-read; failed != nil {
		return c.Explain(failed)
	}
	return to.Explain(err)
}

// renumber gives the records that an undo may still need the numbers that tables have now, by find,
// which returns 0 for a table that keeps its number or is not there, and the versions of their
// rows. A row that is not as the step left it, and a table that is not there, is found to be drift
// by the undo.
func (c *connection) renumber(find func(*capture.Table) (uint32, error)) error {
	all, err := server.Collect(c.Connection, pgx.RowToStructByPos[numbered],
		`SELECT n, rows, coalesce(alterations, ''), coalesce(result, ''), tables FROM unwind.record
		WHERE state IN ($1, $2) AND tables IS NOT NULL`, recordkeeping.Applied, recordkeeping.Undoing)
	if err != nil {
		return err
	}
	for _, r := range all {
		kept, whole, err := c.checkSeal(r)
		if err != nil {
			return err
		}
		if !whole {
			continue // its undo says that it is damaged
		}
		var tables []*capture.Table
		if err := json.Unmarshal([]byte(r.Tables), &tables); err != nil {
			return activities.Errorf(activities.DamagedRecord, "database %s: row %d of unwind.record: %v", c.Name, r.N, err)
		}
		var was, is []uint32
		var there []*capture.Table
		for _, t := range tables {
			found, err := find(t)
			if err != nil {
				return err
			}
			if found != 0 {
				was, is = append(was, t.OID), append(is, found)
				t.OID = found
				there = append(there, t)
			}
		}
		if len(there) == 0 {
			continue
		}
		raw, err := json.Marshal(tables)
		if err != nil {
			return err
		}
		if err := c.Run(`UPDATE unwind.change c SET relid = m.new FROM unnest($2::oid[], $3::oid[]) m(old, new)
			WHERE record = $1 AND relid = m.old`, r.N, was, is); err != nil {
			return err
		}
		r.Tables = string(raw)
		if err := c.sealAgain(r, kept); err != nil {
			return err
		}
		for _, t := range there {
			if err := c.Canonically(func() error {
				return capture.PassVersions(c.Connection, "SELECT (q.*)::text, q.xmin FROM ONLY "+t.Quoted()+" q",
					"r.n = $1 AND c.relid = $2", r.N, t.OID)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbered is a record whose numbers of tables are those of another database.
type numbered struct {
	N, Rows                     int64
	Alterations, Result, Tables string
}

// checkSeal reads the result of a record, and reports whether the record is as its step has sealed
// it.
func (c *connection) checkSeal(r numbered) (kept sealedResult, whole bool, err error) {
	if json.Unmarshal([]byte(r.Result), &kept) != nil || kept.Seal == nil {
		return kept, false, nil //nolint:nilerr // its undo says that it is damaged
	}
	changes, err := c.digestChanges(r.N)
	return kept, kept.Seal.Changes == changes &&
		kept.Seal.Content == digestContent(r.N, r.Rows, r.Tables, r.Alterations), err
}

// sealAgain writes the tables of a record, and its result with a seal over them.
func (c *connection) sealAgain(r numbered, kept sealedResult) (err error) {
	if kept.Seal, err = c.makeSeal(kept.Seal.Token, r.N, r.Rows, r.Tables, r.Alterations); err != nil {
		return err
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return c.Run("UPDATE unwind.record SET tables = $2, result = $3 WHERE n = $1", r.N, r.Tables, string(raw))
}
