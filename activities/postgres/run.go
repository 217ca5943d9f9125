package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

const (
	shownRows    = 20  // of each table, side by side
	returnedRows = 100 // of the last statement
)

// execute runs one statement with the extended protocol, in which the server takes one statement only. It returns how many rows the
// statement changed, the rows that it returned up to a limit, and the first value of those.
func (c *connection) execute(s statement, limit int) (changed int64, rows []map[string]any, first any, err error) {
	prepared, err := c.PgConn().Prepare(c.ctx, "", s.SQL, nil)
	if err != nil {
		return 0, nil, nil, c.explainIn(s.where, err)
	}
	if len(prepared.ParamOIDs) != len(s.Params) {
		return 0, nil, nil, activities.Errorf(activities.Refused, "%s: it has %d parameters, params has %d", s.where, len(prepared.ParamOIDs), len(s.Params))
	}
	values := make([][]byte, len(s.Params))
	for i, p := range s.Params {
		if values[i], err = encodeParam(p, prepared.ParamOIDs[i]); err != nil {
			return 0, nil, nil, activities.Errorf(activities.Refused, "%s: params %d: %v", s.where, i+1, err)
		}
	}
	result := c.PgConn().ExecPrepared(c.ctx, "", values, nil, nil)
	for result.NextRow() {
		if len(rows) >= limit {
			continue // it has to be read to its end
		}
		row := map[string]any{}
		for i, f := range result.FieldDescriptions() {
			row[f.Name] = decodeValue(slices.Clone(result.Values()[i]), f.DataTypeOID)
			if i == 0 && rows == nil {
				first = row[f.Name]
			}
		}
		rows = append(rows, row)
	}
	tag, err := result.Close()
	if err != nil {
		return 0, nil, nil, c.explainIn(s.where, err)
	}
	if !tag.Select() {
		changed = tag.RowsAffected()
	}
	if s.Changes != nil && changed != *s.Changes {
		return 0, nil, nil, activities.Errorf(activities.ActionDenied, "%s: it changes %s, and must change %d; nothing was changed", s.where, activities.CountOf(changed, "row"), *s.Changes)
	}
	return changed, rows, first, nil
}

func (c *connection) explainIn(where string, err error) error {
	err = c.explain(err)
	if e, ok := errors.AsType[*activities.Error](err); ok {
		e.Message = where + ": " + e.Message
		return err
	}
	return fmt.Errorf("%s: %w", where, err)
}

// counts are the rows that the running transaction has inserted, updated and deleted, by the id of the table.
type counts map[uint32]int64

// count reads the server's own counts, also of what was rolled back to a savepoint.
func (c *connection) count() (counts, error) {
	type row struct {
		ID uint32
		N  int64
	}
	all, err := collect(c, pgx.RowToStructByPos[row], `SELECT relid, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_all_tables
		WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname !~ '^pg_toast'`)
	found := counts{}
	for _, each := range all {
		found[each.ID] = each.N
	}
	return found, err
}

// change is what the statements did, in a transaction that is still open.
type change struct {
	tables  []*table
	changes int64 // of the statements themselves
	rows    []map[string]any
	bytes   int64
	events  int64

	alterations []*alteration
	made        []uint32 // the tables that they made, which go as a whole

	declared *declared          // the undo that the step declares: nothing is captured
	uncaught []activities.Count // the rows that changed without being captured
}

// counts are how many rows of each table came, went and changed.
func (d *change) counts() []activities.Count {
	all := slices.Clone(d.uncaught)
	for _, t := range d.tables {
		all = append(all, activities.Count{Of: t.name(), Added: t.Came, Removed: t.Went, Changed: t.Changed, Before: t.Total})
	}
	return all
}

func (d *change) isMade(oid uint32) bool { return slices.Contains(d.made, oid) }

// uncaptured are tables without a trigger that the statements have changed. They have to be prepared, and the statements to run again.
type uncaptured struct{ tables []uint32 }

func (u uncaptured) Error() string {
	return activities.CountOf(len(u.tables), "table") + " not prepared"
}

// perform runs the statements in the current transaction, and finds out all that they changed, by what the server itself counts. It
// refuses what could not be undone. The error uncaptured names tables that have to be prepared first.
func (c *connection) perform(n int64, run script) (*change, error) {
	if run.undo != nil {
		return c.performDeclared(n, run)
	}
	if err := c.run("SELECT set_config('unwind.record', $1, true)", fmt.Sprint(n)); err != nil {
		return nil, err
	}
	before, err := c.count()
	if err != nil {
		return nil, err
	}
	var did change
	for i, s := range run.forward {
		if _, words := splitStatements(s.SQL); isAlteration(words[0]) {
			if err := c.alter(n, s, words[0], before, &did); err != nil {
				return nil, err
			}
			continue
		}
		limit := 0
		if i == len(run.forward)-1 {
			limit = returnedRows
		}
		changed, rows, _, err := c.execute(s, limit)
		if err != nil {
			return nil, staleCapture(err)
		}
		did.changes += changed
		did.rows = rows
	}
	if err := c.run("SET CONSTRAINTS ALL IMMEDIATE"); err != nil { // what is deferred to the commit changes rows too
		return nil, err
	}
	if err := c.seal(&did); err != nil {
		return nil, err
	}
	after, err := c.count()
	if err != nil {
		return nil, err
	}
	for id, n := range before {
		after[id] -= n
	}
	return &did, c.examine(n, after, &did)
}

// examine finds what the statements changed.
func (c *connection) examine(n int64, after counts, did *change) error {
	if err := c.checkSettled(fmt.Sprint(n)); err != nil {
		return err
	}
	var ids []uint32
	for id, n := range after {
		if n != 0 {
			ids = append(ids, id)
		}
	}
	relations, err := c.describeTables(ids)
	if err != nil {
		return err
	}
	if err := c.checkReads(); err != nil {
		return err
	}
	if err := checkCatalogs(relations); err != nil {
		return err
	}
	var total, captured int64
	var missing []uint32
	for _, r := range relations {
		switch {
		case r.Schema == "unwind" && r.Name == "change":
			captured = after[r.OID]
		case did.isMade(r.OID), strings.HasPrefix(r.Schema, "unwind_"):
		case r.Schema == "unwind":
			return refused("unwind.%s: it is the journal of Unwind, and not for statements", r.Name)
		default:
			if err := c.checkTable(r); err != nil {
				return err
			}
			total += after[r.OID]
			did.tables = append(did.tables, &r.table)
			if !r.Captured {
				missing = append(missing, r.OID)
			}
		}
	}
	switch {
	case len(missing) > 0:
		return uncaptured{missing}
	case total != captured:
		return refused("%s changed, and %d captured: a function rolled back a part of what it did (an exception block), or changed unwind.record; what cannot be captured exactly is not done", activities.CountOf(total, "row"), captured)
	}
	for _, t := range did.tables {
		if err := c.settle(n, t); err != nil {
			return err
		}
		var bytes int64
		if err := c.scan(`SELECT count(*) FILTER (WHERE old IS NULL), count(*) FILTER (WHERE new IS NULL), count(*) FILTER (WHERE old IS NOT NULL AND new IS NOT NULL),
			coalesce(sum(pg_column_size(c)), 0) FROM unwind.change c WHERE record = $1 AND relid = $2`, []any{n, t.OID}, &t.Came, &t.Went, &t.Changed, &bytes); err != nil {
			return err
		}
		did.bytes += bytes
		did.events += t.Came + t.Went + t.Changed
	}
	return nil
}

// checkSettled refuses where a statement changed settings that the undo relies on, or tables of other servers. Record is what unwind.record has to be.
func (c *connection) checkSettled(record string) error {
	var settled bool
	if err := c.scan(`SELECT coalesce(current_setting('unwind.record', true), '') = $1 AND current_setting('session_replication_role') = 'origin'
		AND current_setting('datestyle') LIKE 'ISO%' AND current_setting('intervalstyle') = 'postgres' AND current_setting('track_counts')::bool`,
		[]any{record}, &settled); err != nil {
		return err
	}
	if !settled {
		return refused("a statement changed settings of the connection that the undo relies on (unwind.record, session_replication_role, datestyle, intervalstyle, track_counts); nothing was changed")
	}
	// A table of another server has no counts, but a lock.
	locked, err := collect(c, pgx.RowTo[string], `SELECT DISTINCT l.relation::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE l.pid = pg_backend_pid() AND c.relkind = 'f' AND l.mode = 'RowExclusiveLock'`)
	if err == nil && len(locked) > 0 {
		err = refused("%s: it is a foreign table; its server would not undo the change with ours", strings.Join(locked, ", "))
	}
	return err
}

// checkCatalogs refuses changes of the catalogs of the server: what is not a change of rows shows there.
func checkCatalogs(relations []*relation) error {
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
	return refused("it changes the schema, or truncates a table, from within a function or a SELECT (%s changed); write CREATE, ALTER TABLE, DROP TABLE or TRUNCATE as a statement of its own", strings.Join(catalogs, ", "))
}

func refused(format string, args ...any) error {
	return activities.Errorf(activities.Refused, format, args...)
}

// checkTable refuses a table whose rows cannot be put back exactly, or that the worker's config does not allow.
func (c *connection) checkTable(r *relation) error {
	name := r.name()
	switch {
	case len(c.Allow) > 0 && !matchesAny(c.Allow, name):
		return refused("%s: this worker's config allows changes of %s in database %s", name, strings.Join(c.Allow, ", "), c.name)
	case r.Persistence == "t":
		return refused("%s: it is a temporary table, which ends with the connection", name)
	case r.Security:
		return refused("%s: row security applies to the worker's role, so an undo might not see all rows; give the role BYPASSRLS, or make it the owner of the table", name)
	case len(r.Key) == 0:
		return refused("%s: it has no primary key, and no unique index on columns that are NOT NULL, by which an undo would find its rows", name)
	case r.Exclusion:
		return refused("%s: it has a deferrable exclusion constraint, which an undo could not keep", name)
	}
	return nil
}

// checkReads refuses tables that the worker's config denies: each table that a statement uses is locked.
func (c *connection) checkReads() error {
	if len(c.Deny) == 0 {
		return nil
	}
	used, err := collect(c, pgx.RowTo[string], `SELECT DISTINCT n.nspname || '.' || c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`)
	if err != nil {
		return err
	}
	for _, name := range used {
		if matchesAny(c.Deny, name) {
			return refused("%s: this worker's config denies it in database %s", name, c.name)
		}
	}
	return nil
}

// settle replaces the events of rows that were changed more than once by one event each, from the row as it was to the row as it is.
// It relies on no order of events, which triggers can upset: what a row was is the one version that no event made.
func (c *connection) settle(n int64, t *table) error {
	return c.run(fmt.Sprintf(`WITH keys AS (
			SELECT old_key AS key FROM unwind.change WHERE record = $1 AND relid = $2 AND old_key IS NOT NULL
			UNION ALL SELECT new_key FROM unwind.change WHERE record = $1 AND relid = $2 AND new_key IS NOT NULL AND new_key IS DISTINCT FROM old_key),
		often AS MATERIALIZED (SELECT key FROM keys GROUP BY key HAVING count(*) > 1),
		taken AS (DELETE FROM unwind.change c WHERE record = $1 AND relid = $2
			AND (old_key IN (SELECT key FROM often) OR new_key IN (SELECT key FROM often)) RETURNING c.*),
		versions AS (SELECT old_key AS key, old AS version, 1 AS n FROM taken WHERE old_key IS NOT NULL
			UNION ALL SELECT new_key, new, -1 FROM taken WHERE new_key IS NOT NULL),
		current AS (SELECT s.key, r.version, r.x FROM (SELECT key, min(version)::%[1]s AS v FROM versions GROUP BY key) s
			LEFT JOIN LATERAL (SELECT (q.*)::text AS version, q.xmin AS x FROM ONLY %[1]s q WHERE %[2]s) r ON true),
		first AS (SELECT key, version FROM (SELECT * FROM versions UNION ALL SELECT key, version, 1 FROM current WHERE version IS NOT NULL) v
			GROUP BY key, version HAVING sum(n) > 0)
		INSERT INTO unwind.change (record, relid, old_key, old, new_key, new, version)
		SELECT $1, $2, CASE WHEN f.version IS NOT NULL THEN key END, f.version, CASE WHEN c.version IS NOT NULL THEN key END, c.version, c.x
		FROM current c LEFT JOIN first f USING (key) WHERE f.version IS NOT NULL OR c.version IS NOT NULL`,
		t.quoted(), t.on("s.v")), n, t.OID)
}

// fingerprint sets the digest of each table: it covers the rows as they were, and how many come.
func (c *connection) fingerprint(n int64, did *change) error {
	for _, a := range did.alterations {
		a.rows = nil
		if a.Declared != nil {
			a.rows = a.Declared.fingerprint()
		}
		for _, h := range a.Held {
			if !h.hasRows() {
				continue
			}
			content, err := c.digestRows(h.Name)
			if err != nil {
				return err
			}
			a.rows = append(a.rows, content)
		}
	}
	for _, t := range did.tables {
		var digest string
		if err := c.scan(`SELECT encode(sha256(coalesce(string_agg(d, NULL ORDER BY d), '')), 'hex') FROM
			(SELECT sha256(convert_to(old, 'UTF8')) || CASE WHEN new IS NULL THEN '\x00' ELSE '\x01' END::bytea AS d
			FROM unwind.change WHERE record = $1 AND relid = $2 AND old IS NOT NULL) s`, []any{n, t.OID}, &digest); err != nil {
			return err
		}
		t.Digest = activities.DigestOf([]byte(t.name()), []byte(digest), fmt.Append(nil, t.Came))
	}
	return nil
}

// prepareTables makes tables ready, in a transaction of its own or in the current one.
func (c *connection) prepareTables(tables []*relation) error {
	for _, r := range tables {
		if err := c.run(r.prepare()); err != nil {
			return fmt.Errorf("%s: the trigger that captures rows cannot be made; grant TRIGGER on the table to the worker's role, or make it by hand with this SQL:\n%s\n%w",
				r.name(), r.prepare(), err)
		}
	}
	return nil
}
