package alteration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// Alter runs a statement that changes the schema. What it changed is found out from the catalogs,
// not from its text. That it can be taken back exactly is not believed but tried: the inverse runs,
// the schema is compared with what it was, and the inverse is rolled back.
func Alter(c *server.Connection, n int64, s statement.Statement, words []string, before capture.Counts,
	did *Change) error {
	start, err := capture.Count(c)
	if err != nil {
		return err
	}
	if err := c.Run("SAVEPOINT alteration"); err != nil {
		return err
	}
	try := trial{Connection: c, Statement: s, number: len(did.Alterations) + 1, record: n, before: before, start: start,
		did: did}
	a, err := try.perform(words)
	if _, ok := errors.AsType[noInverseError](err); ok {
		err = blame(c, err, try.was)
	}
	if err != nil {
		return err
	}
	end, err := capture.Count(c)
	if err != nil {
		return err
	}
	var catalogs []uint32
	for id, n := range end {
		if id < server.FirstNormalObject { // what others see of it is compared by its description
			before[id] += n - start[id]
			catalogs = append(catalogs, id)
		}
	}
	if err := errors.Join(try.checkDescribed(catalogs), try.checkHeld()); err != nil {
		return err
	}
	if a != nil {
		did.Alterations = append(did.Alterations, a)
	}
	return nil
}

// checkHeld refuses a statement that takes away a part of what is put aside.
func (t *trial) checkHeld() error {
	if len(t.held) == 0 {
		return nil
	}
	are, err := schema.HeldParts(t.Connection)
	if err != nil {
		return err
	}
	for _, part := range t.held {
		if !slices.Contains(are, part) {
			return t.noInverse("it would take away a part of what is kept in " + strings.Fields(part)[0] +
				" for the undo of an earlier statement; leave CASCADE out")
		}
	}
	return nil
}

// checkDescribed refuses a statement that changes what no description shows.
func (t *trial) checkDescribed(catalogs []uint32) error {
	others, err := schema.Undescribed(t.Connection, catalogs)
	if err == nil && len(others) > 0 {
		err = t.noInverse("it changes " + strings.Join(others, ", ") + ", which is no part of a schema")
	}
	if err != nil {
		return err
	}
	builtIn, err := schema.BuiltIn(t.Connection, catalogs)
	if err == nil && len(builtIn) > 0 {
		err = t.noInverse("it changes the server's own objects, in " + strings.Join(builtIn, ", "))
	}
	return err
}

// blame returns why a statement seems to have no inverse: it has none, or others have changed the
// schema while it was tried.
func blame(c *server.Connection, err error, was string) error {
	if err := c.Run("ROLLBACK TO alteration"); err != nil {
		return err
	}
	now, lost := schema.Describe(c)
	switch {
	case lost != nil:
		return lost
	case now != was:
		return ErrInterfered
	}
	return err
}

// ErrInterfered says that the statements have to run again.
var ErrInterfered = errors.New("others changed the schema while the step did; it is tried again")

// trial is a statement that is being tried.
type trial struct {
	*server.Connection
	statement.Statement

	number        int
	record        int64
	before, start capture.Counts // the counts before the step, and before the statement
	held          []string       // what was put aside before the statement
	was           string         // the schema before the statement, described
	traits        []schema.Trait // before the statement
	after         []schema.Trait // after it; nil where nobody has looked
	did           *Change

	// added is what the statement has added to the catalogs, where it has left the rest as it was:
	// nothing else is looked at then, and was, held and traits are empty.
	added *schema.Additions
}

// traitsNow lists the traits as they are.
func (t *trial) traitsNow() ([]schema.Trait, error) {
	if t.added != nil {
		return schema.TraitsOf(t.Connection, t.added.IDs)
	}
	return schema.Traits(t.Connection)
}

// perform runs the statement, in the way that its kind needs, and proves that it can be taken back;
// nil if it has nothing to do.
func (t *trial) perform(words []string) (a *Alteration, err error) {
	if mayAdd(words) {
		if a, err = t.add(); err != nil || t.added != nil {
			return a, err
		}
	}
	if t.was, err = schema.Describe(t.Connection); err != nil {
		return nil, err
	}
	if t.traits, err = schema.Traits(t.Connection); err != nil {
		return nil, err
	}
	if t.held, err = schema.HeldParts(t.Connection); err != nil {
		return nil, err
	}
	switch {
	case words[0] == "truncate":
		a, err = t.truncate()
	case words[0] == "drop" && movedKinds[words[1]] != "":
		a, err = t.moveAway(movedKinds[words[1]])
	case words[0] == "alter" && words[1] == "table" && slices.Contains(words, "drop"):
		a, err = t.dropColumns()
	default:
		a, err = t.alterInPlace()
		if kind := laterMoved[words[1]]; words[0] == "drop" && kind != "" && server.IsCode(err, dependent) {
			if err = t.Run("ROLLBACK TO alteration"); err == nil {
				a, err = t.moveAway(kind)
			}
		}
	}
	if err != nil || a == nil {
		return nil, err
	}
	return t.proven(a)
}

// mayAdd reports whether a statement may only add things that have a name of their own: what comes to
// a table or a column that is there changes that.
func mayAdd(words []string) bool {
	return words[0] == "create" && !slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"trigger", "policy", "rule", "statistics", "references", "owned"}, w)
	})
}

// add runs a statement, and proves that it has only added things and that these can be taken away:
// then nothing else in the schema can be another one. It leaves added nil, and nothing done, where
// the statement has to be compared with the whole schema.
func (t *trial) add() (*Alteration, error) {
	catalogs, err := schema.LookAtCatalogs(t.Connection)
	if err != nil {
		return nil, err
	}
	if _, _, _, err := statement.Execute(t.Connection, t.Statement, 0); err != nil {
		return nil, err
	}
	if err := capture.CheckTemporary(t.Connection); err != nil {
		return nil, err
	}
	if t.added, err = catalogs.FindAdditions(t.Connection); err != nil {
		return nil, err
	}
	if t.added == nil {
		return nil, t.startAgain()
	}
	things, err := schema.ObjectsOf(t.Connection, t.added.IDs)
	if err != nil {
		return nil, err
	}
	made := t.did.made
	a, isNew, err := t.noteFresh(things)
	if err == nil {
		a.Added = t.added.IDs
		err = t.noteTraits(a, isNew)
	}
	if err == nil {
		a, err = t.proven(a)
	}
	if _, ok := errors.AsType[noInverseError](err); ok { // the comparison of the whole schema says what it lacks
		t.added, t.after, t.did.made = nil, nil, made
		return nil, t.startAgain()
	}
	return a, err
}

// startAgain takes the statement back, also where the transaction has failed since. Rows that it
// changed are not counted as those of the step.
func (t *trial) startAgain() error {
	if err := t.Run("ROLLBACK TO alteration"); err != nil {
		return err
	}
	tried, err := capture.Count(t.Connection)
	for id, n := range tried {
		if id >= server.FirstNormalObject {
			t.before[id] += n - t.start[id]
			t.start[id] = n
		}
	}
	return err
}

// proven proves that an alteration can be taken back; it is nil if it has changed nothing.
func (t *trial) proven(a *Alteration) (*Alteration, error) {
	if t.added == nil {
		a.Was = activities.DigestOf([]byte(t.was))
	}
	if err := t.prove(a); err != nil {
		return nil, err
	}
	if len(a.Undo) == 0 && a.Emptied == nil { // it has changed nothing
		return nil, nil //nolint:nilnil // documented
	}
	return a, capture.Mend(t.Connection)
}

// holding is a schema of ours that holds what a statement takes out of the way.
func (t *trial) holding() string {
	return server.Quote(schema.HoldingOf(t.record, t.number))
}

// rolledBack runs do, and rolls back what it did. Rows that it changed are not counted as those of
// the step.
func (t *trial) rolledBack(do func() error) error {
	begin, err := capture.Count(t.Connection)
	if err == nil {
		err = t.Run("SAVEPOINT trial")
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return err
	}
	end, err := capture.Count(t.Connection)
	if err != nil {
		return err
	}
	for id, n := range end {
		if id >= server.FirstNormalObject {
			t.before[id] += n - begin[id]
		}
	}
	return t.Run("ROLLBACK TO trial; RELEASE trial")
}

// prove completes the inverse of a statement, runs it, and compares the schema with what it was.
func (t *trial) prove(a *Alteration) error {
	return t.rolledBack(func() error {
		if err := t.noteNames(a); err != nil {
			return err
		}
		if a.Dropped != nil { // rows are updated, without triggers as in the undo
			left, err := schema.Describe(t.Connection)
			if err != nil {
				return err
			}
			a.Dropped.Goes, a.Dropped.Comes = schema.MissingLines(left, t.was), schema.MissingLines(t.was, left)
			if err := t.Run("SET LOCAL session_replication_role = replica"); err != nil {
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
		return t.checkBack()
	})
}

// checkBack compares the schema with what it was.
func (t *trial) checkBack() error {
	if t.added != nil {
		isBack, err := t.added.AreTakenBack(t.Connection)
		if err == nil && !isBack {
			err = t.noInverse("taking it back would leave something")
		}
		return err
	}
	is, err := schema.Describe(t.Connection)
	if err == nil && is != t.was {
		err = t.noInverse("taking it back would not give back: " + schema.FirstDifference(t.was, is))
	}
	return err
}

func (t *trial) tryBack(sql string) error {
	if err := t.Run(sql); err != nil {
		return t.noInverse(fmt.Sprintf("taking it back fails: %v", err))
	}
	return nil
}

func (t *trial) noInverse(why string) error {
	return noInverseError{activities.Errorf(activities.Refused,
		"%s: it has no exact inverse (%s); nothing was changed. Declare the statements that take the step back as its "+
			"undo, or run it by hand", t.Where, why)}
}

// noInverseError refuses a statement that cannot be taken back exactly.
type noInverseError struct{ error }

func (e noInverseError) Unwrap() error { return e.error }

// checkAffected refuses tables that the worker may not change, or whose rows the step has changed
// already: their images would not fit.
func (t *trial) checkAffected(oid uint32, name string) error {
	plain := strings.ReplaceAll(name, `"`, "")
	switch {
	case !t.Allows(plain):
		return activities.Errorf(activities.Refused, "%s: this worker's config allows changes of %s in database %s", plain,
			strings.Join(t.Allow, ", "), t.Name)
	case t.Denies(plain):
		return activities.Errorf(activities.Refused, "%s: this worker's config denies it in database %s", plain, t.Name)
	}
	return t.checkUntouched(oid, plain)
}

// checkUntouched refuses tables whose rows the step has changed already.
func (t *trial) checkUntouched(oid uint32, name string) error {
	if t.start[oid] == t.before[oid] || t.did.IsMade(oid) {
		return nil
	}
	return activities.Errorf(activities.Refused,
		"%s: the step has changed rows of %s before; put the one or the other into a step of its own", t.Where, name)
}

// alterInPlace runs a statement as it is written.
func (t *trial) alterInPlace() (*Alteration, error) {
	before, err := schema.Objects(t.Connection)
	if err != nil {
		return nil, err
	}
	nodes, err := schema.FileNodes(t.Connection)
	if err != nil {
		return nil, err
	}
	if _, _, _, err := statement.Execute(t.Connection, t.Statement, 0); err != nil {
		return nil, err
	}
	if err := capture.CheckTemporary(t.Connection); err != nil {
		return nil, err
	}
	after, err := schema.Objects(t.Connection)
	if err != nil {
		return nil, err
	}
	a, isNew, err := t.noteFresh(schema.Lacking(after, before))
	if err != nil {
		return nil, err
	}
	now, err := schema.FileNodes(t.Connection)
	if err != nil {
		return nil, err
	}
	for oid, node := range now {
		if old, there := nodes[oid]; there && old.Node != node.Node && node.Ours && !t.did.IsMade(oid) {
			return nil, t.noInverse("it rewrites the table " + node.Name)
		}
	}
	return a, t.noteTraits(a, isNew)
}

// noteFresh notes what a statement has made, and returns the ids of it, given what came.
func (t *trial) noteFresh(came []schema.Object) (a *Alteration, isNew map[uint32]bool, err error) {
	a, isNew = &Alteration{}, map[uint32]bool{}
	fresh := slices.DeleteFunc(came, func(o schema.Object) bool { return !o.Ours })
	for _, o := range fresh {
		isNew[o.OID] = isNew[o.OID] || o.Sub == 0
	}
	var names []string
	for _, kind := range dropOrder {
		for _, o := range fresh {
			if o.Kind != kind || o.Sub > 0 && isNew[o.OID] {
				continue
			}
			if err := t.note(a, o); err != nil {
				return nil, nil, err
			}
			a.things = append(a.things, o)
			if len(names) == 0 || !slices.Contains(implied, kind) {
				names = append(names, strings.ToLower(kind)+" "+strings.TrimPrefix(o.Table+"."+o.Name, "."))
			}
		}
	}
	if names != nil {
		a.Does = "makes " + strings.Join(names, ", ")
	}
	return a, isNew, nil
}

// dropOrder is the order in which things are dropped that one statement has made: what goes with
// another is gone by then.
var dropOrder = []string{"MATERIALIZED VIEW", "VIEW", "FOREIGN KEY", "COLUMN", "CONSTRAINT", "TABLE", "INDEX",
	"SEQUENCE", "ROUTINE", "DOMAIN", "TYPE", "SCHEMA"}

// implied are things that come with others.
var implied = []string{"FOREIGN KEY", "CONSTRAINT", "INDEX", "SEQUENCE"}

// note notes how something new is dropped.
func (t *trial) note(a *Alteration, o schema.Object) error {
	switch o.Kind {
	case "COLUMN":
		a.Undo = append(a.Undo, fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s", o.Table, o.Name))
		if t.did.IsMade(o.OID) {
			return nil
		}
		m := made{OID: o.OID, Table: o.Table, Column: o.Name}
		if err := m.readColumn(t.Connection, o.Sub); err != nil {
			return err
		}
		a.Made = append(a.Made, m)
		return t.checkAffected(o.OID, o.Table)
	case "FOREIGN KEY", "CONSTRAINT":
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

// readColumn reads what a column is that was added, with the value that its rows have. Of a
// partitioned table, only the partitions know that.
func (m *made) readColumn(c *server.Connection, number int32) error {
	return c.Canonically(func() error {
		return schema.WithPlainNames(c, func() error {
			return c.Scan(`SELECT format_type(a.atttypid, a.atttypmod), (coalesce(a.attmissingval, (SELECT l.attmissingval
				FROM pg_partition_tree(a.attrelid) p JOIN pg_attribute l ON l.attrelid = p.relid AND l.attname = a.attname
				WHERE l.atthasmissing LIMIT 1))::text::text[])[1] FROM pg_attribute a WHERE a.attrelid = $1
				AND a.attnum = $2`, []any{m.OID, number}, &m.Type, &m.Content)
		})
	})
}

// Seal notes what the step leaves.
func Seal(c *server.Connection, did *Change) error {
	if did.Alterations == nil {
		return nil
	}
	if err := sealLeft(c, did.Alterations); err != nil {
		return err
	}
	parts, err := heldParts(c, did.Alterations)
	if err != nil {
		return err
	}
	for _, a := range did.Alterations {
		a.Parts = a.partsIn(parts)
		if err := a.sealShape(c); err != nil {
			return err
		}
		if a.Dropped == nil {
			continue
		}
		problem, err := findReshaped(c, a.Dropped)
		if err != nil {
			return err
		}
		a.Dropped.Sealed = problem == ""
	}
	for _, a := range did.Alterations {
		for i, m := range a.Made {
			if m.Column != "" {
				continue
			}
			var now *string // a later statement may have renamed it
			if err := schema.WithPlainNames(c, func() error {
				return c.Scan("SELECT (SELECT oid::regclass::text FROM pg_class WHERE oid = $1)", []any{m.OID}, &now)
			}); err != nil {
				return err
			}
			if now == nil || schema.IsHeld(*now) {
				return activities.Errorf(activities.Refused, "%s: the step makes it and takes it away again; leave both out",
					m.Table)
			}
			content, _, err := schema.Content(c, m.OID, *now)
			if err != nil {
				return err
			}
			a.Made[i].Left, a.Made[i].Content = *now, &content
		}
	}
	return nil
}
