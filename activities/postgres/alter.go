package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// alteration is what one statement did to the schema, or a TRUNCATE to tables, with all that takes it back.
type alteration struct {
	// Does says it in a line.
	Does string `json:"does"`
	// Undo are the statements that take it back, in order.
	Undo []string `json:"undo,omitempty"`
	// Made are the tables and columns that it made: what others put into them since is drift.
	Made []made `json:"made,omitempty"`
	// Emptied are the tables that it truncated.
	Emptied []emptied `json:"emptied,omitempty"`
	// Held are things that stand in a schema of ours until the record is released: tables with the rows that went, and others.
	Held []held `json:"held,omitempty"`
	// Left are the traits that it changed, as it left them: another one is drift.
	Left []left `json:"left,omitempty"`
	// Names are those of things that it dropped: an undo that makes them anew gives them other ids.
	Names []name `json:"names,omitempty"`
	// Was is the digest of the schema's description before the statement.
	Was activities.Digest `json:"was"`

	// Dropped are columns that it dropped.
	Dropped *dropped `json:"dropped,omitempty"`
	// Declared is the undo that the step declares: it takes back all that the step did.
	Declared *declared `json:"declared,omitempty"`

	back []place  // of Dropped: the columns from the first one on
	rows []string // digests of what is held, where a plan is made or an approval is compared
}

// made is a table or a column that a statement made.
type made struct {
	OID    uint32 `json:"oid"`
	Table  string `json:"table"` // quoted
	Column string `json:"column,omitempty"`
	Type   string `json:"type,omitempty"`
	// Content is a column's value in rows that nobody has changed, as text, or the digest of what the step left in a table.
	Content *string `json:"content"`
}

// held is a thing in a schema of ours.
type held struct {
	Kind string `json:"kind,omitempty"` // empty: a table
	Name string `json:"name"`           // quoted
	Of   string `json:"of"`             // as people know it
	// OID is the id that it keeps when it moves; 0 in records of before that was noted.
	OID uint32 `json:"oid,omitempty"`

	schema, table string // the same, not quoted
}

// hasRows reports whether it is a table.
func (h held) hasRows() bool { return h.Kind == "" }

// isAlteration reports whether a statement with these words changes the schema, or truncates.
func isAlteration(words []string) bool {
	return slices.Contains([]string{"create", "alter", "drop", "truncate", "comment", "grant", "revoke"}, words[0])
}

// alter runs a statement that changes the schema. What it changed is found out from the catalogs, not from its text. That it can be taken
// back exactly is not believed but tried: the inverse runs, the schema is compared with what it was, and the inverse is rolled back.
func (c *connection) alter(n int64, s statement, words []string, before counts, did *change) error {
	start, err := c.count()
	if err != nil {
		return err
	}
	was, err := c.describe()
	if err != nil {
		return err
	}
	if err := c.run("SAVEPOINT alteration"); err != nil {
		return err
	}
	traits, err := c.traits()
	if err != nil {
		return err
	}
	try := trial{connection: c, statement: s, number: len(did.alterations) + 1, record: n, before: before, start: start, traits: traits, did: did}
	a, err := try.perform(words, was)
	if _, ok := errors.AsType[noInverseError](err); ok {
		err = c.blame(err, was)
	}
	if err != nil {
		return err
	}
	end, err := c.count()
	if err != nil {
		return err
	}
	var catalogs []uint32
	for id, n := range end {
		if id < firstNormalObject { // what others see of it is compared by its description
			before[id] += n - start[id]
			catalogs = append(catalogs, id)
		}
	}
	if err := try.checkDescribed(catalogs); err != nil {
		return err
	}
	if a != nil {
		did.alterations = append(did.alterations, a)
	}
	return nil
}

// described are the catalogs whose rows the description of a schema covers, or that follow from those.
var described = []string{
	"pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_depend", "pg_shdepend", "pg_description", "pg_proc", "pg_aggregate", "pg_type", "pg_enum", "pg_range", "pg_cast",
	"pg_namespace", "pg_rewrite", "pg_trigger", "pg_policy", "pg_sequence", "pg_inherits", "pg_partitioned_table", "pg_statistic", "pg_statistic_ext", "pg_statistic_ext_data", "pg_publication_rel",
}

// checkDescribed refuses a statement that changes what no description shows.
func (t *trial) checkDescribed(catalogs []uint32) error {
	others, err := collect(t.connection, pgx.RowTo[string], "SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND relname <> ALL($2::text[]) AND relnamespace = 'pg_catalog'::regnamespace ORDER BY 1", catalogs, described)
	if err == nil && len(others) > 0 {
		err = t.noInverse("it changes " + strings.Join(others, ", ") + ", which is no part of a schema")
	}
	return err
}

// blame returns why a statement seems to have no inverse: it has none, or others have changed the schema while it was tried.
func (c *connection) blame(err error, was string) error {
	if err := c.run("ROLLBACK TO alteration"); err != nil {
		return err
	}
	now, lost := c.describe()
	switch {
	case lost != nil:
		return lost
	case now != was:
		return errInterfered
	}
	return err
}

// errInterfered says that the statements have to run again.
var errInterfered = errors.New("others changed the schema while the step did; it is tried again")

// firstNormalObject is the first id that is not of the server's own objects.
const firstNormalObject = 16384

// trial is a statement that is being tried.
type trial struct {
	*connection

	statement
	number        int
	record        int64
	before, start counts  // the counts before the step, and before the statement
	traits        []trait // before the statement
	did           *change
}

// perform runs the statement, in the way that its kind needs, and proves that it can be taken back; nil if it has nothing to do.
func (t *trial) perform(words []string, was string) (a *alteration, err error) {
	switch {
	case words[0] == "truncate":
		a, err = t.truncate()
	case words[0] == "drop" && movedKinds[words[1]] != "":
		a, err = t.moveAway(movedKinds[words[1]])
	case words[0] == "alter" && words[1] == "table" && slices.Contains(words, "drop"):
		a, err = t.dropColumns()
	default:
		a, err = t.alterInPlace()
	}
	if err != nil || a == nil {
		return nil, err
	}
	a.Was = activities.DigestOf([]byte(was))
	if err := t.prove(a, was); err != nil {
		return nil, err
	}
	if len(a.Undo) == 0 && a.Emptied == nil { // it has changed nothing
		return nil, nil //nolint:nilnil // documented
	}
	return a, t.mendCapture()
}

// holding is a schema of ours that holds what a statement takes out of the way.
func (t *trial) holding() string { return quote(fmt.Sprintf("unwind_%d_%d", t.record, t.number)) }

// rolledBack runs do, and rolls back what it did. Rows that it changed are not counted as those of the step.
func (t *trial) rolledBack(do func() error) error {
	begin, err := t.count()
	if err == nil {
		err = t.run("SAVEPOINT trial")
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return err
	}
	end, err := t.count()
	if err != nil {
		return err
	}
	for id, n := range end {
		if id >= firstNormalObject {
			t.before[id] += n - begin[id]
		}
	}
	return t.run("ROLLBACK TO trial; RELEASE trial")
}

// prove completes the inverse of a statement, runs it, and compares the schema with what it was.
func (t *trial) prove(a *alteration, was string) error {
	return t.rolledBack(func() error {
		left, err := t.describe()
		if err != nil {
			return err
		}
		if err := t.noteNames(a); err != nil {
			return err
		}
		if a.Dropped != nil { // rows are updated, without triggers as in the undo
			if err := t.run("SET LOCAL session_replication_role = replica"); err != nil {
				return err
			}
		}
		for _, sql := range a.Undo {
			if err := t.tryBack(sql); err != nil {
				return err
			}
		}
		if a.Dropped != nil {
			if err := t.putColumnsBack(a); err != nil {
				return err
			}
		}
		if err := t.takeBackTraits(a); err != nil {
			return err
		}
		is, err := t.describe()
		if err == nil && is != was {
			err = t.noInverse("taking it back would not give back: " + firstDifference(was, is))
		}
		if a.Dropped != nil {
			a.Dropped.Goes, a.Dropped.Comes = missingLines(left, was), missingLines(was, left)
		}
		return err
	})
}

func (t *trial) tryBack(sql string) error {
	if err := t.run(sql); err != nil {
		return t.noInverse(fmt.Sprintf("taking it back fails: %v", err))
	}
	return nil
}

func (t *trial) noInverse(why string) error {
	return noInverseError{refused("%s: it has no exact inverse (%s); nothing was changed. Declare the statements that take the step back as its undo, or run it by hand", t.where, why)}
}

// noInverseError refuses a statement that cannot be taken back exactly.
type noInverseError struct{ error }

func (e noInverseError) Unwrap() error { return e.error }

// checkAffected refuses tables that the worker may not change, or whose rows the step has changed already: their images would not fit.
func (t *trial) checkAffected(oid uint32, name string) error {
	plain := strings.ReplaceAll(name, `"`, "")
	switch {
	case len(t.Allow) > 0 && !matchesAny(t.Allow, plain):
		return refused("%s: this worker's config allows changes of %s in database %s", plain, strings.Join(t.Allow, ", "), t.name)
	case matchesAny(t.Deny, plain):
		return refused("%s: this worker's config denies it in database %s", plain, t.name)
	}
	return t.checkUntouched(oid, plain)
}

// checkUntouched refuses tables whose rows the step has changed already.
func (t *trial) checkUntouched(oid uint32, name string) error {
	if t.start[oid] == t.before[oid] || t.did.isMade(oid) {
		return nil
	}
	return refused("%s: the step has changed rows of %s before; put the one or the other into a step of its own", t.where, name)
}

// alterInPlace runs a statement as it is written.
func (t *trial) alterInPlace() (*alteration, error) {
	before, err := t.objects()
	if err != nil {
		return nil, err
	}
	nodes, err := t.fileNodes()
	if err != nil {
		return nil, err
	}
	if _, _, _, err := t.execute(t.statement, 0); err != nil {
		return nil, err
	}
	after, err := t.objects()
	if err != nil {
		return nil, err
	}
	var a alteration
	isNew := map[uint32]bool{}
	fresh := slices.DeleteFunc(lacking(after, before), func(o object) bool { return !o.Ours })
	for _, o := range fresh {
		isNew[o.OID] = isNew[o.OID] || o.Sub == 0
	}
	var names []string
	for _, kind := range dropOrder {
		for _, o := range fresh {
			if o.Kind != kind || o.Sub > 0 && isNew[o.OID] {
				continue
			}
			if err := t.note(&a, o); err != nil {
				return nil, err
			}
			if len(names) == 0 || !slices.Contains(implied, kind) {
				names = append(names, strings.ToLower(kind)+" "+strings.TrimPrefix(o.Table+"."+o.Name, "."))
			}
		}
	}
	now, err := t.fileNodes()
	if err != nil {
		return nil, err
	}
	for oid, node := range now {
		if old, there := nodes[oid]; there && old.node != node.node && node.ours && !t.did.isMade(oid) {
			return nil, t.noInverse("it rewrites the table " + node.name)
		}
	}
	if names != nil {
		a.Does = "makes " + strings.Join(names, ", ")
	}
	return &a, t.noteTraits(&a, isNew)
}

// dropOrder is the order in which things are dropped that one statement has made: what goes with another is gone by then.
var dropOrder = []string{"MATERIALIZED VIEW", "VIEW", "COLUMN", "CONSTRAINT", "TABLE", "INDEX", "SEQUENCE", "ROUTINE", "DOMAIN", "TYPE", "SCHEMA"}

// implied are things that come with others.
var implied = []string{"CONSTRAINT", "INDEX", "SEQUENCE"}

// note notes how something new is dropped.
func (t *trial) note(a *alteration, o object) error {
	switch o.Kind {
	case "COLUMN":
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s", o.Table, o.Name))
		if t.did.isMade(o.OID) {
			return nil
		}
		m := made{OID: o.OID, Table: o.Table, Column: o.Name}
		if err := t.scan(`SELECT format_type(atttypid, atttypmod), ((attmissingval::text)::text[])[1] FROM pg_attribute WHERE attrelid = $1 AND attnum = $2`,
			[]any{o.OID, o.Sub}, &m.Type, &m.Content); err != nil {
			return err
		}
		a.Made = append(a.Made, m)
		return t.checkAffected(o.OID, o.Table)
	case "CONSTRAINT":
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE IF EXISTS %s DROP CONSTRAINT IF EXISTS %s", o.Table, o.Name))
		return nil
	case "TABLE", "MATERIALIZED VIEW":
		t.did.made = append(t.did.made, o.OID)
		a.Made = append(a.Made, made{OID: o.OID, Table: o.Name})
		if err := t.checkAffected(o.OID, o.Name); err != nil {
			return err
		}
	}
	a.Undo = append(a.Undo, fmt.Sprintf("DROP %s IF EXISTS %s", o.Kind, o.Name))
	return nil
}

// fileNode is the file that a table's rows are in: another one after a TRUNCATE, or when it was rewritten.
type fileNode struct {
	node uint32
	kind string
	name string
	ours bool // the current transaction has given it to the table
}

func (c *connection) fileNodes() (map[uint32]fileNode, error) {
	all := map[uint32]fileNode{}
	err := c.withPlainNames(func() error {
		rows, err := c.Query(c.ctx, "SELECT oid, relfilenode, relkind::text, oid::regclass::text, "+ours+" FROM pg_class x WHERE relkind IN ('r', 'S', 'm') AND oid >= 16384")
		if err != nil {
			return c.explain(err)
		}
		var oid uint32
		var f fileNode
		_, err = pgx.ForEachRow(rows, []any{&oid, &f.node, &f.kind, &f.name, &f.ours}, func() error {
			all[oid] = f
			return nil
		})
		return c.explain(err)
	})
	return all, err
}

// seal notes what the step leaves.
func (c *connection) seal(did *change) error {
	if err := c.sealLeft(did.alterations); err != nil {
		return err
	}
	for _, a := range did.alterations {
		if a.Dropped == nil {
			continue
		}
		problem, err := c.findReshaped(a.Dropped)
		if err != nil {
			return err
		}
		a.Dropped.Sealed = problem == ""
	}
	for _, a := range did.alterations {
		for i, m := range a.Made {
			if m.Column != "" {
				continue
			}
			content, there, err := c.content(m.OID, m.Table)
			if err != nil {
				return err
			}
			if !there {
				return refused("%s: the step makes it and takes it away again; leave both out", m.Table)
			}
			a.Made[i].Content = &content
		}
	}
	return nil
}

// content is a digest of the rows of a table; there is false where the table is gone, or another one has its name.
func (c *connection) content(oid uint32, table string) (digest string, there bool, err error) {
	if err := c.scan("SELECT coalesce(to_regclass($1)::oid = $2, false)", []any{table, oid}, &there); err != nil || !there {
		return "", false, err
	}
	digest, err = c.digestRows(table)
	return digest, true, err
}

// digestRows is a digest of the rows of a table, in whichever order they are.
func (c *connection) digestRows(table string) (digest string, err error) {
	return digest, c.scan("SELECT count(*) || CASE count(*) WHEN 1 THEN ' row, ' ELSE ' rows, ' END || coalesce(sum(hashtextextended((q.*)::text, 0)), 0) FROM "+table+" q", nil, &digest)
}
