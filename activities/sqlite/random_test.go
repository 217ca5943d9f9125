package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// TestRandomTransactionsAreUndoneExactly runs random transactions over random schemas, undoes them
// last in first out, and compares all that SQLite's own program dumps, rowids included, after each.
func TestRandomTransactionsAreUndoneExactly(t *testing.T) {
	databases := 10
	switch {
	case testrun.Deep():
		databases = 50
	case testrun.Plain():
		databases = 3
	}
	random := testrun.Rand(t)
	for n := range databases {
		g := &generator{Rand: rand.New(rand.NewPCG(random.Uint64(), uint64(n)))}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			g.run(t)
		})
	}
}

// stepsOfOne is how many transactions run on one database.
const stepsOfOne = 20

// generator makes schemas and statements.
type generator struct {
	*rand.Rand

	tables []string
}

func (g *generator) run(t *testing.T) {
	script := g.schema()
	b := newBench(t, script)
	dumps := []string{b.dump()}
	var entries []activities.Entry
	for len(entries) < stepsOfOne {
		sql := g.transaction()
		before := dumps[len(dumps)-1]
		e, err := b.exec(sql)
		if err != nil {
			if !strings.Contains(err.Error(), "disk is full") { // there is no larger rowid
				require.Contains(t, []activities.ErrorType{activities.ActionDenied, activities.Refused}, activities.TypeOf(err),
					"%v\n%s", err, sql)
			}
			require.Equal(t, before, b.dump(), "after a transaction that failed (%v)\n%s\n%s", err, script, sql)
			require.Equal(t, activities.Nothing, b.undo(e, "").Outcome)
			if g.IntN(10) > 0 {
				continue
			}
		}
		entries, dumps = append(entries, e), append(dumps, b.dump())
	}
	for i, e := range slices.Backward(entries) {
		undone := b.undo(e, "")
		want := []activities.Outcome{activities.Restored, activities.Nothing}
		if undone.Drift != nil {
			t.Logf("the undo of step %d shows\n%s", i, undone.Drift.Diff)
			// Rows that referred to nothing before the step too, which only a person can know.
			require.Regexp(t, `^(! .* refers to a row of .*(\n|$))+$`, undone.Drift.Diff, script)
			undone, want = b.undo(e, undone.Drift.Digest), []activities.Outcome{activities.Residue}
		}
		require.Contains(t, want, undone.Outcome, "%+v\n%s", undone, script)
		require.Equal(t, dumps[i], b.dump(), "after the undo of step %d\n%s", i, script)
	}
	require.Equal(t, "ok\n", shell(t, b.path, "PRAGMA integrity_check"))
}

func (g *generator) pick(all ...string) string { return all[g.IntN(len(all))] }

// schema makes tables of every kind that SQLite has, with rows.
func (g *generator) schema() string {
	var s strings.Builder
	s.WriteString(g.pick("", "PRAGMA journal_mode = WAL;\n", "PRAGMA auto_vacuum = FULL;\n",
		"PRAGMA encoding = 'UTF-16';\n"))
	s.WriteString("CREATE TABLE log (line);\n")
	for n := range 2 + g.IntN(3) {
		name := g.pick("t", "old", "new", "with space", "Ümlaut") + fmt.Sprint(n)
		key := g.pick("k INTEGER PRIMARY KEY", "k INTEGER PRIMARY KEY AUTOINCREMENT", "k INTEGER PRIMARY KEY DESC",
			"k TEXT PRIMARY KEY", "k", "k INT UNIQUE",
			"k REAL PRIMARY KEY NOT NULL /* without */", "k TEXT PRIMARY KEY COLLATE NOCASE NOT NULL /* without */")
		columns := []string{key, "a " + g.pick("TEXT", "INT", "REAL", "BLOB", "", "NUMERIC DEFAULT 7"),
			"b " + g.pick("TEXT UNIQUE", "INT", "TEXT COLLATE NOCASE UNIQUE ON CONFLICT REPLACE", "CHECK (b IS NOT 3)")}
		if len(g.tables) > 0 && g.IntN(2) == 0 {
			parent := g.tables[g.IntN(len(g.tables))]
			columns = append(columns,
				`p REFERENCES "`+parent+`" (k) ON DELETE `+g.pick("CASCADE", "SET NULL", "SET DEFAULT")+" ON UPDATE CASCADE")
		} else {
			columns = append(columns, "p")
		}
		if g.IntN(3) == 0 {
			columns = append(columns, "c GENERATED ALWAYS AS (typeof(a)) "+g.pick("VIRTUAL", "STORED"))
		}
		without := ""
		if strings.Contains(key, "without") {
			without = " WITHOUT ROWID"
		}
		fmt.Fprintf(&s, "CREATE TABLE %q (%s)%s;\n", name, strings.Join(columns, ", "), without)
		if !strings.Contains(key, "PRIMARY") {
			fmt.Fprintf(&s, "CREATE UNIQUE INDEX \"i%s\" ON %q (k);\n", name, name)
		}
		if g.IntN(2) == 0 {
			fmt.Fprintf(&s, "CREATE TRIGGER \"g%s\" AFTER %s ON %q BEGIN INSERT INTO log VALUES (%s); END;\n", name,
				g.pick("INSERT", "UPDATE"), name, g.pick("new.k", "new.a", "'x'"))
		}
		if g.IntN(3) == 0 {
			fmt.Fprintf(&s, "ALTER TABLE %q ADD COLUMN later DEFAULT %s;\n", name, g.pick("5", "'five'", "x'05'", "NULL"))
		}
		g.tables = append(g.tables, name)
		first := g.value
		if strings.Contains(key, "INTEGER") {
			first = func() string { return fmt.Sprint(g.IntN(30)) } // anything else ends the script
		}
		for range 5 + g.IntN(20) {
			fmt.Fprintf(&s, "INSERT OR IGNORE INTO %q (k, a, b) VALUES (%s, %s, %s);\n", name, first(), g.value(), g.value())
		}
	}
	return s.String()
}

func (g *generator) value() string {
	return g.pick("NULL", "0", "3", "-1", "9223372036854775807", "1.5", "1e300", "'a'", "'A'", "'b''c'", "''", "x''",
		"x'00ff'", "'1'", "zeroblob(2000)", "'Ünï'",
		fmt.Sprint(g.IntN(30)), fmt.Sprintf("'w%d'", g.IntN(30)))
}

// transaction makes some statements. They may fail.
func (g *generator) transaction() string {
	var all []string
	for range 1 + g.IntN(5) {
		all = append(all, g.statement())
	}
	if g.IntN(12) == 0 {
		all = append(all, fmt.Sprintf(g.pick(
			"CREATE TABLE \"made%d\" (x PRIMARY KEY, y); INSERT INTO log VALUES ('made')",
			"CREATE INDEX \"index%d\" ON log (line)", "PRAGMA user_version = %d",
			"CREATE VIEW \"view%d\" AS SELECT line FROM log", "DROP TRIGGER IF EXISTS \"gt%d\"",
			"CREATE VIRTUAL TABLE \"fts%d\" USING fts5 (words)",
			"CREATE TABLE \"copy%d\" AS SELECT line FROM log", "DELETE FROM sqlite_sequence; ANALYZE; SELECT %d"), g.IntN(1000)))
	}
	return strings.Join(all, ";\n")
}

func (g *generator) statement() string {
	name := g.tables[g.IntN(len(g.tables))]
	insert := "INSERT " + g.pick("", "OR REPLACE ", "OR REPLACE ", "OR IGNORE ") + "INTO"
	condition := g.pick("k = "+g.value(), "k > "+g.value(), "a IS "+g.value(), "rowid % 3 = 0 OR k = 'a'", "true")
	if strings.Contains(condition, "rowid") && g.IntN(2) == 0 {
		condition = "k IS NULL"
	}
	switch g.IntN(8) {
	case 0, 1:
		return fmt.Sprintf("%s %q (k, a, b) VALUES (%s, %s, %s), (%s, %s, %s)", insert, name, g.value(), g.value(), g.value(),
			g.value(), g.value(), g.value())
	case 2:
		return fmt.Sprintf("%s %q (a, p) SELECT %s, k FROM %q LIMIT 3", insert, name, g.value(),
			g.tables[g.IntN(len(g.tables))])
	case 3:
		return fmt.Sprintf("DELETE FROM %q WHERE %s", name, condition)
	case 4:
		return fmt.Sprintf("UPDATE OR %s %q SET k = %s WHERE %s", g.pick("REPLACE", "IGNORE", "ABORT"), name,
			g.pick(g.value(), "k + 1", "k || 'x'"), condition)
	case 5:
		return fmt.Sprintf("INSERT INTO %q (k, a) VALUES (%s, 1) ON CONFLICT (k) DO UPDATE SET a = %s", name, g.value(),
			g.value())
	case 6:
		return fmt.Sprintf("DELETE FROM %q", g.pick("log", name))
	}
	return fmt.Sprintf("UPDATE OR REPLACE %q SET a = %s, b = %s WHERE %s", name, g.value(), g.value(), condition)
}
