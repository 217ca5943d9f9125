package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// perform runs the statements in the current transaction, and finds out all that they changed, by
// what the server itself counts. It refuses what could not be undone. The error uncaptured names
// tables that have to be prepared first.
func (c *connection) perform(n int64, run statement.Script) (*alteration.Change, error) {
	if run.Undo != nil {
		return alteration.PerformDeclared(c.Connection, n, run)
	}
	if err := c.Run("SELECT set_config('unwind.record', $1, true)", fmt.Sprint(n)); err != nil {
		return nil, err
	}
	before, err := capture.Count(c.Connection)
	if err != nil {
		return nil, err
	}
	var did alteration.Change
	for i, s := range run.Forward {
		if _, words := statement.Split(s.SQL); statement.IsAlteration(words[0]) {
			if err := c.alter(n, s, words[0], before, &did); err != nil {
				return nil, err
			}
			continue
		}
		limit := 0
		if i == len(run.Forward)-1 {
			limit = alteration.ReturnedRows
		}
		changed, rows, _, err := statement.Execute(c.Connection, s, limit)
		if err != nil {
			return nil, capture.Stale(err)
		}
		did.Changes += changed
		did.Rows = rows
	}
	if err := c.Run("SET CONSTRAINTS ALL IMMEDIATE"); err != nil { // what is deferred to the commit changes rows too
		return nil, err
	}
	if err := alteration.Seal(c.Connection, &did); err != nil {
		return nil, err
	}
	after, err := capture.Count(c.Connection)
	if err != nil {
		return nil, err
	}
	for id, n := range before {
		after[id] -= n
	}
	if err := c.examine(n, after, &did); err != nil {
		return nil, err
	}
	return &did, c.proveChecks(n, &did)
}

// proveChecks tries the undo of a step, and rolls it back, where rows have to go back under CHECKs
// that may forbid them.
func (c *connection) proveChecks(n int64, did *alteration.Change) error {
	var ids []uint32
	for _, t := range did.Tables {
		if t.Went+t.Changed > 0 {
			ids = append(ids, t.OID)
		}
	}
	for _, a := range did.Alterations {
		ids = append(ids, a.EmptiedIDs()...)
	}
	conditional, err := capture.FindConditional(c.Connection, ids)
	if err != nil || len(conditional) == 0 {
		return err
	}
	r := record{N: n, Tables: did.Tables}
	raw, err := json.Marshal(did.Alterations) // an undo notes names that things have anew
	if err == nil {
		err = json.Unmarshal(raw, &r.Alterations)
	}
	if err == nil {
		err = c.Run("SAVEPOINT proof; SET LOCAL session_replication_role = replica")
	}
	if err != nil {
		return err
	}
	err = capture.WithoutTriggers(c.Connection, r.Tables, func() error { return c.replaceRows(&r, false) })
	if err == nil {
		err = alteration.Revert(c.Connection, n, r.Alterations)
	}
	if found, ok := errors.AsType[drift.Error](err); ok {
		return refused(
			"an undo could not put rows back under the CHECKs of %s: %s. Change what the CHECK reads in a step of its own "+
				"before, or drop the CHECK before and make it again after", strings.Join(conditional, ", "), found.Drift.Diff)
	}
	if err != nil {
		return err
	}
	return c.Run("ROLLBACK TO proof; RELEASE proof")
}

// alter runs a statement that changes the schema. Columns that are sensitive stay so, whatever it
// calls them.
func (c *connection) alter(n int64, s statement.Statement, words []string, before capture.Counts,
	did *alteration.Change) error {
	if err := c.FollowSensitive(); err != nil {
		return err
	}
	if err := alteration.Alter(c.Connection, n, s, words, before, did); err != nil {
		return err
	}
	return c.FollowSensitive()
}

// examine finds what the statements changed.
func (c *connection) examine(n int64, after capture.Counts, did *alteration.Change) error {
	if err := capture.CheckSettled(c.Connection, fmt.Sprint(n)); err != nil {
		return err
	}
	var ids []uint32
	for id, n := range after {
		if n != 0 {
			ids = append(ids, id)
		}
	}
	relations, err := capture.Describe(c.Connection, ids)
	if err != nil {
		return err
	}
	if err := c.CheckReads(); err != nil {
		return err
	}
	if err := checkCatalogs(relations); err != nil {
		return err
	}
	var journal int64
	var missing []uint32
	for _, r := range relations {
		of, isHeld := schema.HolderOf(r.Schema)
		switch {
		case r.Schema == "unwind" && r.Name == "change":
			journal = after[r.OID]
		case did.IsMade(r.OID), isHeld && of == n:
		case r.Schema == "unwind", isHeld:
			return refused("%s.%s: it is the journal of Unwind, and not for statements", r.Schema, r.Name)
		default:
			if err := c.checkTable(r); err != nil {
				return err
			}
			r.NoteMasked(c.Connection)
			did.Tables = append(did.Tables, &r.Table)
			if !r.Captured {
				missing = append(missing, r.OID)
			}
		}
	}
	if len(missing) > 0 {
		return capture.Uncaptured{Tables: missing}
	}
	found, err := c.tally(n)
	if err != nil {
		return err
	}
	if err := c.checkCaptured(n, did.Tables, after, journal, found); err != nil {
		return err
	}
	return c.settleAll(n, did, found)
}

// tally counts the events of a table.
type tally struct {
	OID                       uint32
	Batches                   int64
	Came, Went, Changed, Size int64
	// IsSettled reports whether one statement has changed all rows, and the key of none.
	IsSettled bool
}

func (a tally) events() int64 { return a.Came + a.Went + a.Changed }

// tally counts the events of a record, by the id of the table.
func (c *connection) tally(n int64) (map[uint32]tally, error) {
	all, err := server.Collect(c.Connection, pgx.RowToStructByPos[tally], `SELECT relid, count(*),
		coalesce(sum(cardinality(new)) FILTER (WHERE old IS NULL), 0),
		coalesce(sum(cardinality(old)) FILTER (WHERE new IS NULL), 0),
		coalesce(sum(cardinality(new)) FILTER (WHERE old IS NOT NULL), 0), sum(coalesce(pg_column_size(old),
		0) + coalesce(pg_column_size(new), 0)),
		count(DISTINCT cmin::text) = 1 AND NOT coalesce(bool_or(moved), false)
		FROM unwind.change WHERE record = $1 GROUP BY relid`, n)
	found := map[uint32]tally{}
	for _, each := range all {
		found[each.OID] = each
	}
	return found, err
}

// settleAll leaves one event of each row, and counts them.
func (c *connection) settleAll(n int64, did *alteration.Change, found map[uint32]tally) error {
	isSettled := true
	for _, t := range did.Tables {
		if found[t.OID].IsSettled && !t.Cascaded {
			continue
		}
		isSettled = false
		if err := c.Canonically(func() error { return c.settle(n, t) }); err != nil {
			return err
		}
	}
	if !isSettled {
		var err error
		if found, err = c.tally(n); err != nil {
			return err
		}
	}
	for _, t := range did.Tables {
		all := found[t.OID]
		t.Came, t.Went, t.Changed = all.Came, all.Went, all.Changed
		did.Bytes += all.Size
		did.Events += all.events()
	}
	return nil
}

// checkCaptured compares the events that a record has with the rows that the server counted, table
// by table, and with what was written to the journal: that has to be these events, and nothing
// else.
func (c *connection) checkCaptured(n int64, tables []*capture.Table, counted capture.Counts, journal int64,
	found map[uint32]tally) error {
	var kept []uint32
	for _, t := range tables {
		if events := found[t.OID].events(); events != counted[t.OID] {
			return refused(
				"%s of %s changed, and %d captured: a function rolled back a part of what it did (an exception block), or "+
					"changed unwind.record; what cannot be captured exactly is not done",
				activities.CountOf(counted[t.OID], "row"), t.FullName(), events)
		}
		kept = append(kept, t.OID)
	}
	for _, each := range found {
		journal -= each.Batches
	}
	if journal != 0 {
		return refused(
			"a statement changed unwind.change: it is the journal of Unwind, and not for statements; nothing was changed")
	}
	if len(found) == len(kept) {
		return nil
	}
	// A partition that the step makes has the trigger of its table, and goes with its rows.
	return c.Run("DELETE FROM unwind.change WHERE record = $1 AND relid <> ALL(coalesce($2::oid[], '{}'))", n, kept)
}

// checkCatalogs refuses changes of the catalogs of the server: what is not a change of rows shows
// there.
func checkCatalogs(relations []*capture.Relation) error {
	var catalogs []string
	for _, r := range relations {
		if r.Schema == "pg_catalog" {
			catalogs = append(catalogs, r.Name)
		}
	}
	switch {
	case len(catalogs) == 0:
		return nil
	case slices.Contains(catalogs, "pg_largeobject") || slices.Contains(catalogs, "pg_largeobject_metadata"):
		return refused("it changes large objects, which no trigger can see; keep the bytes in a column of type bytea")
	}
	return refused(
		"it changes the schema, or truncates a table, from within a function or a SELECT (%s changed); write CREATE, "+
			"ALTER TABLE, DROP TABLE or TRUNCATE as a statement of its own", strings.Join(catalogs, ", "))
}

func refused(format string, args ...any) error {
	return activities.Errorf(activities.Refused, format, args...)
}

// checkTable refuses a table whose rows cannot be put back exactly, or that the worker's config
// does not allow.
func (c *connection) checkTable(r *capture.Relation) error {
	name := r.FullName()
	switch {
	case !c.Allows(name):
		return refused("%s: this worker's config allows changes of %s in database %s", name, strings.Join(c.Allow, ", "),
			c.Name)
	case r.Persistence == "t":
		return refused("%s: it is a temporary table, which ends with the connection", name)
	case r.Security:
		return refused(
			"%s: row security applies to the worker's role, so an undo might not see all rows; give the role BYPASSRLS, or "+
				"make it the owner of the table", name)
	case len(r.Key) == 0:
		return refused(
			"%s: it has no primary key, and no unique index on columns that are NOT NULL, by which an undo would find its rows",
			name)
	case r.Exclusion:
		return refused("%s: it has a deferrable exclusion constraint, which an undo could not keep", name)
	}
	return nil
}

// settle replaces the events of rows that were changed more than once by one event each, from the
// row as it was to the row as it is. It relies on no order of events, which triggers can upset:
// what a row was is the one version that no event made. Keys are the same only where their texts
// are: 1.0 and 1.00 are two.
func (c *connection) settle(n int64, t *capture.Table) error {
	var isSettled bool
	if err := c.Scan(
		fmt.Sprintf(`SELECT count(*) = count(DISTINCT hashtextextended(coalesce(was, now), 0))
			AND NOT coalesce(bool_or(was <> now), false) FROM
		(SELECT CASE WHEN e.old IS NOT NULL THEN %[2]s END AS was, CASE WHEN e.new IS NOT NULL THEN %[3]s END AS now FROM
			(SELECT old, new, old::%[1]s AS o, new::%[1]s AS n FROM unwind.event WHERE record = $1
			AND relid = $2 OFFSET 0) e) s`,
			t.Quoted(), t.KeyOf("(e.o)"), t.KeyOf("(e.n)")), []any{n, t.OID}, &isSettled); err != nil || isSettled {
		return err // two keys with one hash only cost time
	}
	return c.Run(fmt.Sprintf(`WITH versions AS MATERIALIZED (
			SELECT %[3]s AS key, e.version, 1 AS n FROM (SELECT old AS version, old::%[1]s AS r FROM unwind.event
			WHERE record = $1 AND relid = $2 AND old IS NOT NULL OFFSET 0) e
			UNION ALL SELECT %[3]s, e.version, -1 FROM (SELECT new AS version, new::%[1]s AS r FROM unwind.event
			WHERE record = $1 AND relid = $2 AND new IS NOT NULL OFFSET 0) e),
		taken AS (DELETE FROM unwind.change WHERE record = $1 AND relid = $2),
		current AS (SELECT s.key, r.version, r.x FROM (SELECT key, min(version)::%[1]s AS v FROM versions GROUP BY key) s
			LEFT JOIN LATERAL (SELECT (q.*)::text AS version, q.xmin AS x FROM ONLY %[1]s q WHERE %[2]s
			AND %[4]s = s.key) r ON true),
		first AS (SELECT key, version FROM (SELECT key, version, n FROM versions UNION ALL SELECT key, version, 1
		FROM current WHERE version IS NOT NULL) v
			GROUP BY key, version HAVING sum(n) > 0),
		events AS (SELECT f.version AS old, c.version AS new, c.x, row_number() OVER (PARTITION BY f.version IS NULL,
		c.version IS NULL) / %[5]d AS batch
			FROM current c LEFT JOIN first f USING (key) WHERE f.version IS NOT NULL OR c.version IS NOT NULL)
		INSERT INTO unwind.change (record, relid, old, new, version)
		SELECT $1, $2, CASE WHEN old IS NOT NULL THEN olds END, CASE WHEN new IS NOT NULL THEN news END, versions FROM (
			SELECT batch, min(old) AS old, min(new) AS new, array_agg(old) AS olds, array_agg(new) AS news,
			array_agg(x) AS versions
			FROM events GROUP BY old IS NULL, new IS NULL, batch) b`,
		t.Quoted(), t.On("s.v"), t.KeyOf("(e.r)"), t.KeyOf("q"), capture.Batch), n, t.OID)
}
