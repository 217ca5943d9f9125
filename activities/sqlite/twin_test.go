package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestARowWhoseKeyIsOnlyEqual is a row of somebody else under a key that equals that of the step's
// row by collation or type.
func TestARowWhoseKeyIsOnlyEqual(t *testing.T) {
	const (
		person = "CREATE TABLE person (name TEXT COLLATE NOCASE PRIMARY KEY, n) WITHOUT ROWID; INSERT INTO person VALUES " +
			"('Bob', 1), ('eve', 2);"
		price = "CREATE TABLE price (kind, p, n, PRIMARY KEY (kind, p)) WITHOUT ROWID; INSERT INTO price VALUES ('a', " +
			"1, 'one'), ('a', 2, 'two');"
	)
	for _, c := range []struct {
		name, tables, step, others, shown string
		// forced is the table after a forced undo.
		forced string
	}{
		{"deleted, and there again", person, "DELETE FROM person WHERE name = 'Bob'",
			"INSERT INTO person VALUES ('BOB', 'theirs')",
			"- person name='BOB' n='theirs'", "Bob|1\neve|2\n"},
		{"changed, and renamed", person, "UPDATE person SET n = 7 WHERE name = 'Bob'",
			"UPDATE person SET name = 'BOB'  WHERE n = 7",
			"- person name='Bob' n=7", "Bob|1\neve|2\n"},
		{"inserted, and renamed", person, "INSERT INTO person VALUES ('zoe', 3)",
			"UPDATE person SET name = 'Zoe', n = 'theirs' WHERE name = 'zoe'",
			"+ person name='Zoe' n='theirs'", "Bob|1\neve|2\nZoe|theirs\n"},
		{"a number of another type", price, "DELETE FROM price WHERE p = 1", "INSERT INTO price VALUES ('a', 1.0, 'theirs')",
			"- price kind='a' p=1 n='theirs'", "a|1|one\na|2|two\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.tables)
			read := map[string]string{person: "SELECT name, n FROM person", price: "SELECT kind, p, n FROM price"}[c.tables]
			e := b.mustExec(c.step)
			shell(t, b.path, c.others)
			after := b.dump()
			undone := b.undo(e, "")
			require.Equal(t, activities.Drifted, undone.Outcome, "%+v", undone)
			require.Contains(t, undone.Drift.Diff, c.shown)
			require.Equal(t, after, b.dump())
			undone = b.undo(e, undone.Drift.Digest)
			require.Equal(t, activities.Restored, undone.Outcome, "%+v", undone)
			require.Equal(t, c.forced, shell(t, b.path, read))
		})
	}
}

// TestAStepThatChangesOnlyTheCaseOfAKey is undone without drift: both rows are its own.
func TestAStepThatChangesOnlyTheCaseOfAKey(t *testing.T) {
	b := newBench(t,
		"CREATE TABLE person (name TEXT COLLATE NOCASE PRIMARY KEY, n) WITHOUT ROWID; INSERT INTO person VALUES ('Bob', "+
			"1), ('eve', 2);")
	shell(t, b.path, ".backup "+b.path+".copy")
	e := b.mustExec("UPDATE person SET name = 'BOB', n = 7 WHERE name = 'Bob'")
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "Bob|1\neve|2\n", shell(t, b.path, "SELECT name, n FROM person"))
	// A database that was restored in place is as before.
	e = b.mustExec("UPDATE person SET name = 'BOB', n = 7 WHERE name = 'Bob'")
	shell(t, b.path, ".restore "+b.path+".copy")
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "Bob|1\neve|2\n", shell(t, b.path, "SELECT name, n FROM person"))
}
