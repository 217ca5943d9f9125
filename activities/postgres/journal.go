package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Schema is what the journal is: SQL that an operator can run as well, and read. Everything of ours in a database is in the schema
// unwind, and triggers "!unwind ..." on each table that a step has changed; what steps have dropped or truncated is in schemas unwind_RECORD_NUMBER until
// the record is released. DROP SCHEMA unwind CASCADE takes all but those away.
const Schema = `CREATE SCHEMA IF NOT EXISTS unwind;
CREATE TABLE IF NOT EXISTS unwind.record (
	n bigint GENERATED ALWAYS AS IDENTITY,
	token text PRIMARY KEY,
	state text NOT NULL,
	entry text NOT NULL,
	owner text NOT NULL,
	since text NOT NULL,
	result text,
	tables text,
	alterations text,
	rows bigint NOT NULL DEFAULT 0,
	bytes bigint NOT NULL DEFAULT 0,
	committed text,
	until text,
	outcome text,
	begun text,
	ended text,
	released text,
	holders text NOT NULL DEFAULT '[]',
	forgotten boolean NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS unwind.change (
	record bigint NOT NULL,
	relid oid NOT NULL,
	old_key text,
	new_key text,
	old text,
	new text,
	version xid
);
ALTER TABLE unwind.change REPLICA IDENTITY FULL; -- for a publication of all tables
CREATE INDEX IF NOT EXISTS change_record ON unwind.change (record, relid);`

// The states of a record. The row of a token is never deleted: it is the fence.
const (
	applied  = "applied" // committed together with the change
	undoing  = "undoing" // no forward may act any more
	undone   = "undone"
	released = "released" // before it acted, or when its rollback window had closed
)

// record is the row of a token.
type record struct {
	N      int64
	State  string
	Result activities.Result
	Seal   *seal            // nil: the forward has never acted
	Tables []*capture.Table // nil: the forward has never acted
	// Alterations are what it did to the schema, in order.
	Alterations []*alteration.Alteration
	Rows        int64
	Outcome     activities.Undone
	Holders     []activities.Owner
	Forgotten   bool
}

// hasJournal reports whether the journal is there.
func (c *connection) hasJournal() (there bool, err error) {
	return there, c.Scan("SELECT to_regclass('unwind.change') IS NOT NULL", nil, &there)
}

// ensureJournal makes the journal. Several processes may do it at once.
func (c *connection) ensureJournal() error {
	if there, err := c.hasJournal(); there || err != nil {
		return err
	}
	return c.InTransaction(c.makeJournal)
}

// makeJournal makes the journal in the current transaction.
func (c *connection) makeJournal() error {
	if err := c.Run("SELECT pg_advisory_xact_lock(hashtext('unwind'))"); err != nil {
		return err
	}
	if err := c.Run(Schema); err != nil {
		return fmt.Errorf("the schema unwind, in which undo records are kept, cannot be made; grant CREATE on the database to the worker's role: %w", err)
	}
	return nil
}

// insertRecord inserts the record of a token, unless there is one. It is DamagedRecord if there has been one, of a step that has acted. It
// waits for another transaction that has inserted one, and ends that where it does nothing.
func (c *connection) insertRecord(e activities.Entry, state string) (n int64, created bool, err error) {
	entry, err := json.Marshal(e)
	if err != nil {
		return 0, false, err
	}
	owner, err := json.Marshal(activities.OwnerOf(c.Ctx))
	if err != nil {
		return 0, false, err
	}
	err = c.QueryRow(c.Ctx, `INSERT INTO unwind.record (token, state, entry, owner, since) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (token) DO NOTHING RETURNING n`, e.Token, state, string(entry), string(owner), timestamp(time.Now())).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, c.Explain(err)
	}
	return n, true, c.checkUnmarked(e.Token)
}

// readRecord reads the record of a token; nil if there is none. With lock, it stays locked until the transaction ends.
func (c *connection) readRecord(token string, lock bool) (*record, error) {
	sql := "SELECT n, state, entry, result, tables, alterations, rows, outcome, holders, forgotten FROM unwind.record WHERE token = $1"
	if lock {
		sql += " FOR UPDATE"
	}
	var r record
	var entry string
	var result, tables, alterations, outcome, holders *string
	err := c.QueryRow(c.Ctx, sql, token).Scan(&r.N, &r.State, &entry, &result, &tables, &alterations, &r.Rows, &outcome, &holders, &r.Forgotten)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, c.Explain(err)
	}
	var e activities.Entry
	var sealed sealedResult
	var kept keptOutcome
	for _, part := range []struct {
		text *string
		to   any
	}{{&entry, &e}, {result, &sealed}, {tables, &r.Tables}, {alterations, &r.Alterations}, {outcome, &kept}, {holders, &r.Holders}} {
		if part.text == nil {
			continue
		}
		if err := json.Unmarshal([]byte(*part.text), part.to); err != nil {
			return nil, c.damagedRow(token, err.Error())
		}
	}
	r.Result, r.Seal, r.Outcome = sealed.Result, sealed.Seal, kept.Undone
	switch {
	case r.Forgotten:
	case e.Token != token:
		return nil, c.damagedRow(token, "its entry is that of token "+e.Token)
	case outcome != nil && kept.Token != token:
		return nil, c.damagedRow(token, "its outcome is that of token "+kept.Token)
	default:
		if problem := r.findContradiction(token, result, tables, alterations); problem != "" {
			return nil, c.damagedRow(token, problem)
		}
	}
	return &r, nil
}

func (c *connection) damagedRow(token, what string) error {
	return activities.Errorf(activities.DamagedRecord, "database %s: the row of token %s in unwind.record is damaged (was it put back to an earlier state?): %s; nothing was touched; "+
		"bring the row back, or decide what becomes of the step", c.Name, token, what)
}

// fence makes sure that no forward of a token acts any more, and that the token has a record in the state given or a later one. It ends
// the forward's transaction, wherever it is.
func (c *connection) fence(e activities.Entry, state string) error {
	return c.waiting(e.Token, func() error {
		if err := c.EndForward(e.Token); err != nil {
			return err
		}
		return c.InTransaction(func() error {
			_, created, err := c.insertRecord(e, state)
			if err != nil || created {
				return err
			}
			// The state may be all that tells that the step has acted: then a result without tables tells it from now on.
			return c.Run("UPDATE unwind.record SET state = $2, begun = $4, result = CASE WHEN tables IS NULL THEN coalesce(result, '{}') ELSE result END WHERE token = $1 AND state = $3", e.Token, state, applied, timestamp(time.Now()))
		})
	})
}

// stuck is how long a transaction that does nothing may hold a record that another call needs. A running worker pauses for
// milliseconds; one that was stopped, for ever.
const stuck = 2 * time.Second

// waiting runs do again for as long as it meets a lock that another call of the token holds, and ends calls that hold one and do nothing:
// their worker was stopped.
func (c *connection) waiting(token string, do func() error) error {
	if err := c.Run("SET lock_timeout = '300ms'"); err != nil {
		return err
	}
	for {
		err := do()
		if !server.IsCode(err, "55P03") {
			if err == nil {
				err = c.Run("SET lock_timeout = '30s'")
			}
			return err
		}
		if err := c.Run(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name LIKE 'unwind % ' || $1::text AND pid <> pg_backend_pid()
			AND state LIKE 'idle in transaction%' AND now() - state_change > make_interval(secs => $2)`, token, stuck.Seconds()); err != nil {
			return err
		}
		if c.Ctx.Err() != nil {
			return context.Cause(c.Ctx)
		}
	}
}

// timestamp is how the journal writes a time: to the nanosecond.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
