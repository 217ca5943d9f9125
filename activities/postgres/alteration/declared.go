package alteration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// Declared is the undo that a step declares, with what it is compared by.
type Declared struct {
	// Statements are those of the undo, as they were written: numbers are not rounded.
	Statements json.RawMessage `json:"statements"`
	// Transaction is the last id that the step's transaction has taken: rows that others have written
	// since have a later one.
	Transaction string `json:"transaction"`
	// Goes and Comes are the lines of the schema's description that the step takes away and adds.
	Goes  []string `json:"goes,omitempty"`
	Comes []string `json:"comes,omitempty"`
	// Contents are what the step or its undo touches.
	Contents []content `json:"contents,omitempty"`
	// Checkpoint are the tables whose rows were copied before the step.
	Checkpoint []copied `json:"checkpoint,omitempty"`
	// Losses are what the undo did not give back when it was tried.
	Losses []string `json:"losses,omitempty"`
}

// content is a table, materialized view or sequence, with what was in it as a digest; nil where it
// was not there.
type content struct {
	Name      string  `json:"name"` // quoted
	Exclusive bool    `json:"exclusive,omitempty"`
	Before    *string `json:"before"`
	Left      *string `json:"left"`
	// OID is the id that it had before the step; 0 where it was not there.
	OID uint32 `json:"oid,omitempty"`
}

// list returns the statements of the undo.
func (d *Declared) list() (all []statement.Statement, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(d.Statements)))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return nil, activities.Errorf(activities.DamagedRecord, "the statements of a declared undo in unwind.record: %v", err)
	}
	for i := range all {
		all[i].Where = fmt.Sprintf("undo %d", i+1)
	}
	return all, nil
}

// fingerprint covers what an approval covers: what the step touches, as it was before, and what is
// lost of it.
func (d *Declared) fingerprint() []string {
	all := slices.Clone(d.Losses)
	for _, x := range d.Contents {
		if x.Before != nil {
			all = append(all, x.Name+" "+*x.Before)
		}
	}
	return all
}

// Tell says in a plan how the step is taken back, as its undo has shown when it was tried.
func (d *Declared) Tell(change *activities.Change) {
	change.Undo = "Runs the statements that the step declares as its undo, in one transaction, unless others have " +
		"changed what they touch."
	for _, one := range d.Checkpoint {
		change.Facts = append(change.Facts, one.tell())
	}
	if d.Checkpoint != nil {
		change.Undo += " Then the rows of what they touch are put back from a copy."
	}
	if d.Losses == nil {
		change.Facts = append(change.Facts,
			"undo: it is declared, and was tried: it gives back exactly what the step changes")
		return
	}
	change.Strategy, change.Losses, change.Ask = activities.Compensation, d.Losses, true
	change.Facts = append(change.Facts,
		"undo: it is declared, and was tried: it does not give back all that the step changes")
}

// PerformDeclared runs the statements of a step that declares its undo. That the undo takes the
// step back is not believed but tried, and what it does not give back is told: the statements and
// the undo run once to find out what they touch, and, with that locked and compared, once more. Of
// the second time, the statements stay.
func PerformDeclared(c *server.Connection, n int64, run statement.Script) (*Change, error) {
	watched := map[string]bool{}
	for range Tries {
		if err := c.Run("SAVEPOINT declared"); err != nil {
			return nil, err
		}
		did, touched, err := tryDeclared(c, n, run, watched)
		if err != nil || touched == nil {
			return did, err
		}
		if err := c.Run("ROLLBACK TO declared"); err != nil {
			return nil, err
		}
		maps.Copy(watched, touched)
	}
	return nil, ErrUnprepared
}

// tryDeclared runs the statements, and the undo in a savepoint. It returns what they touch if not
// all of it was watched.
func tryDeclared(c *server.Connection, n int64, run statement.Script, watched map[string]bool) (did *Change,
	touched map[string]bool, err error) {
	if err := schema.LockContents(c, watched); err != nil {
		return nil, nil, err
	}
	d := &Declared{}
	if run.Checkpoint {
		if d.Checkpoint, err = takeCheckpoint(c, n, watched); err != nil {
			return nil, nil, err
		}
	}
	before, err := schema.TakeSurvey(c)
	if err != nil {
		return nil, nil, err
	}
	was, err := schema.ReadContents(c, watched)
	if err != nil {
		return nil, nil, err
	}
	did = &Change{Tables: []*capture.Table{}}
	if did.Changes, did.Rows, err = runAll(c, run.Forward); err != nil {
		return nil, nil, err
	}
	left, err := schema.TakeSurvey(c)
	if err != nil {
		return nil, nil, err
	}
	changed := before.TouchedUntil(left)
	if err := errors.Join(checkTouched(c, changed), checkBuiltIn(c, before, left)); err != nil {
		return nil, nil, err
	}
	d.Goes, d.Comes = schema.MissingLines(before.Schema, left.Schema), schema.MissingLines(left.Schema, before.Schema)
	if len(changed) == 0 && d.Goes == nil && d.Comes == nil {
		return did, nil, nil // there is nothing to take back
	}
	leaves, err := schema.ReadContents(c, watched)
	if err != nil {
		return nil, nil, err
	}
	if d.Statements, err = json.Marshal(run.Undo); err != nil {
		return nil, nil, err
	}
	ids := before.IDs()
	for _, name := range slices.Sorted(maps.Keys(watched)) {
		d.Contents = append(d.Contents, content{name, watched[name], was[name], leaves[name], ids[name]})
	}
	after, back, err := tryUndo(c, d, run.Undo, left)
	if err != nil {
		return nil, nil, err
	}
	touched = schema.NamesOf([]map[uint32]bool{changed, left.TouchedUntil(after)}, before, left, after)
	for name, exclusive := range touched {
		if known, there := watched[name]; !there || exclusive && !known {
			return nil, touched, nil
		}
	}
	for _, one := range d.Checkpoint {
		did.Bytes += one.Bytes
	}
	d.Losses = append(compareSchemas(before.Schema, after.Schema), d.compareContents(back)...)
	did.Declared = d
	did.Alterations = []*Alteration{{Does: d.describe(before.Schema + "\n" + left.Schema),
		Was: activities.DigestOf([]byte(before.Schema)), Declared: d}}
	did.Uncaught = before.CountsUntil(left)
	d.Transaction, err = takeID(c)
	return did, nil, err
}

// takeID takes an id that is later than those of all savepoints so far.
func takeID(c *server.Connection) (id string, err error) {
	if err := c.Run("SAVEPOINT id"); err != nil {
		return "", err
	}
	if err := c.Scan("INSERT INTO unwind.change (record, relid) VALUES (0, 0) RETURNING xmin::text", nil,
		&id); err != nil {
		return "", err
	}
	return id, c.Run("ROLLBACK TO id; RELEASE id")
}

// tryUndo runs the undo, and rolls it back. It returns what it would leave.
func tryUndo(c *server.Connection, d *Declared, undo []statement.Statement, left schema.Survey) (after schema.Survey,
	back map[string]*string, err error) {
	if err := c.Run("SAVEPOINT trial"); err != nil {
		return after, nil, err
	}
	if _, _, err = runAll(c, undo); err == nil {
		err = putCheckpointBack(c, d)
	}
	if lost, ok := errors.AsType[drift.Error](err); ok {
		return after, nil,
			activities.Errorf(activities.Refused,
				"the undo that the step declares fails after the step, so nothing was changed: %s", lost.Drift.Diff)
	}
	if e, ok := errors.AsType[*activities.Error](err); ok {
		return after, nil,
			activities.Errorf(activities.Refused,
				"the undo that the step declares fails after the step, so nothing was changed: %s", e.Message)
	}
	if err != nil {
		return after, nil, err
	}
	if after, err = schema.TakeSurvey(c); err != nil {
		return after, nil, err
	}
	if err := errors.Join(checkTouched(c, left.TouchedUntil(after)), checkBuiltIn(c, left, after)); err != nil {
		return after, nil, err
	}
	if back, err = schema.ReadContents(c, d.watched()); err != nil {
		return after, nil, err
	}
	return after, back, c.Run("ROLLBACK TO trial; RELEASE trial")
}

// runAll runs statements of the author's. Rows are not captured.
func runAll(c *server.Connection, all []statement.Statement) (changes int64, rows []map[string]any, err error) {
	for i, s := range all {
		limit := 0
		if i == len(all)-1 {
			limit = ReturnedRows
		}
		changed, returned, _, err := statement.Execute(c, s, limit)
		if err != nil {
			return 0, nil, err
		}
		changes, rows = changes+changed, returned
	}
	return changes, rows, c.Run("SET CONSTRAINTS ALL IMMEDIATE") // what is deferred to the commit changes rows too
}

// checkTouched refuses what is not of this database, or cannot be compared, or may not be changed.
func checkTouched(c *server.Connection, touched map[uint32]bool) error {
	if err := capture.CheckSettled(c, ""); err != nil {
		return err
	}
	if err := errors.Join(capture.CheckTemporary(c), c.CheckReads()); err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(touched))
	hidden, err := server.Collect(c, pgx.RowTo[string],
		"SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND (relisshared OR NOT has_table_privilege(oid, "+
			"'SELECT')) ORDER BY 1", ids)
	if err != nil {
		return err
	}
	if len(hidden) > 0 {
		return activities.Errorf(activities.Refused,
			"it changes %s, which is of the whole server, or not for the worker's role to read: nothing could tell whether "+
				"an undo gives it back", strings.Join(hidden, ", "))
	}
	all, err := capture.Describe(c, ids)
	if err != nil {
		return err
	}
	for _, r := range all {
		name := r.FullName()
		switch {
		case r.Schema == "pg_catalog":
		case schema.IsJournal(r.Schema):
			return activities.Errorf(activities.Refused, "%s: it is the journal of Unwind, and not for statements", name)
		case r.Persistence == "t":
			return activities.Errorf(activities.Refused, "%s: it is temporary, and ends with the connection", name)
		case r.Security:
			return activities.Errorf(activities.Refused,
				"%s: row security applies to the worker's role, so not all rows could be compared; give the role BYPASSRLS, or "+
					"make it the owner of the table", name)
		case !c.Allows(name):
			return activities.Errorf(activities.Refused, "%s: this worker's config allows changes of %s in database %s", name,
				strings.Join(c.Allow, ", "), c.Name)
		}
	}
	return nil
}

// checkBuiltIn refuses changes of the server's own objects between two surveys: no description
// shows them.
func checkBuiltIn(c *server.Connection, start, end schema.Survey) error {
	changed, err := schema.BuiltIn(c, start.DescribedUntil(end))
	if err == nil && len(changed) > 0 {
		err = activities.Errorf(activities.Refused,
			"it changes the server's own objects, in %s: nothing could tell whether an undo gives it back; run it by hand",
			strings.Join(changed, ", "))
	}
	return err
}

// compareContents says which contents are others than before the step, given what is in them now.
func (d *Declared) compareContents(now map[string]*string) (losses []string) {
	for _, x := range d.Contents {
		if !sameContent(x.Before, now[x.Name]) {
			losses = append(losses,
				fmt.Sprintf("%s: before the step %s, then %s", x.Name, sayContent(x.Before), sayOther(x.Before, now[x.Name])))
		}
	}
	return losses
}

func sameContent(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// sayContent says what is in something, without its digest.
func sayContent(digest *string) string {
	if digest == nil {
		return "not there"
	}
	text, _, _ := strings.Cut(*digest, ",")
	return text
}

// sayOther does the same for another content.
func sayOther(was, is *string) string {
	if text := sayContent(is); text != sayContent(was) {
		return text
	}
	return sayContent(is) + " that are not the same"
}

// compareSchemas says how a schema differs from what it should be.
func compareSchemas(want, is string) (losses []string) {
	for _, line := range schema.MissingLines(want, is) {
		losses = append(losses, "the schema lacks: "+line)
	}
	for _, line := range schema.MissingLines(is, want) {
		losses = append(losses, "the schema has instead or besides: "+line)
	}
	return losses
}

// describe says what the step does to the schema, given its description before and after. Columns
// of indexes go without saying.
func (d *Declared) describe(schemas string) string {
	var names []string
	for _, line := range slices.Concat(d.Goes, d.Comes) {
		words := strings.Fields(line)
		if words[0] == "column" && strings.Contains(schemas, "\nindex "+words[1]+" ") {
			continue
		}
		if name := nameOf(line); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return "changes what its declared undo takes back"
	}
	return "changes " + strings.Join(names, ", ")
}

// nameOf is what a line of a schema's description is about.
func nameOf(line string) string {
	words := strings.Fields(line)
	switch {
	case words[0] == "column" && len(words) > 3:
		return "column " + words[1] + "." + words[3]
	case words[0] == "constraint" && len(words) > 2:
		return "constraint " + words[2] + " of " + words[1]
	case (words[0] == "trigger" || words[0] == "rule") && len(words) > 3:
		return words[0] + " " + words[3]
	case words[0] == "others":
		return "extensions, operators or the like"
	}
	return strings.Join(words[:min(2, len(words))], " ")
}
