package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	sqlite.Attend()
	os.Exit(actiontest.Main(m, cases()...))
}

func TestConformance(t *testing.T) {
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	for _, c := range cases() {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) { actiontest.Run(t, c) })
	}
}

type params = map[string]any

// people is a database with a bit of everything.
const people = `
CREATE TABLE team (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE person (id TEXT PRIMARY KEY, team INTEGER REFERENCES team (id) ON DELETE CASCADE, name TEXT, age INTEGER,
	born INTEGER GENERATED ALWAYS AS (2020 - age) VIRTUAL, photo BLOB, height REAL);
CREATE TABLE tag (person TEXT, word TEXT COLLATE NOCASE, n INT, PRIMARY KEY (word, person)) WITHOUT ROWID;
CREATE TABLE log (line TEXT);
CREATE INDEX person_name ON person (name);
CREATE VIEW adult AS SELECT id, name, age FROM person WHERE age >= 18;
CREATE TRIGGER person_log AFTER UPDATE ON person BEGIN INSERT INTO log VALUES (old.name || ' -> ' || new.name); END;
INSERT INTO team (name) VALUES ('red'), ('blue'), ('green');
INSERT INTO person VALUES ('ann', 1, 'Ann', 31, x'00ff', 1.7), ('bob', 1, 'Bob', 12, NULL, 1.5), ('cy', 2, 'Cy', 45,
x'', 2),
	(NULL, 2, 'Nobody', NULL, x'', NULL), (NULL, 2, 'Nobody', NULL, x'', NULL);
INSERT INTO tag VALUES ('ann', 'Go', 1), ('bob', 'go', 2), ('ann', 'sql', 3);
INSERT INTO log VALUES ('first'), ('first'), (NULL);
`

const secretName = `Anna "the secret" 'horse'`

// patience is less than the 30 seconds after which a process gives up that its worker does not
// answer: an undo has to end it before.
const patience = 25 * time.Second

func cases() []actiontest.Case {
	rows := actiontest.Case{
		Name: "rows", Secret: secretName,
		With: func(dir string) any {
			return params{"database": databaseOf(dir), "statements": []params{
				{"sql": "UPDATE person SET name = ?, age = age + 1 WHERE id = 'ann'", "params": []any{secretName}, "changes": 1},
				{"sql": "DELETE FROM team WHERE name = :name", "params": params{"name": "blue"}},
				{"sql": "INSERT INTO team (name) VALUES ('violet'); REPLACE INTO tag VALUES ('ann', 'GO', 9), ('cy', 'new', 1)"},
				{"sql": "DELETE FROM log WHERE line = 'first'"},
			}}
		},
		Next: func(dir string) any {
			return params{"database": databaseOf(dir),
				"sql": "UPDATE person SET age = 99; INSERT INTO team (name) VALUES ('other')"}
		},
		Drift:     sql("UPDATE tag SET n = n + 1 WHERE word = 'new'"),
		Meanwhile: sql("UPDATE person SET age = age + 1 WHERE id = 'ann'"),
	}
	wal := rows
	wal.Name, wal.Start, wal.Brief = "rows in WAL mode", start("PRAGMA journal_mode = WAL;"+people), true
	schema := actiontest.Case{
		Name: "schema",
		With: func(dir string) any {
			return params{"database": databaseOf(dir),
				"sql": "ALTER TABLE person ADD COLUMN mail TEXT DEFAULT 'none'; DROP TABLE tag; UPDATE person SET mail = id; " +
					"PRAGMA user_version = 7"}
		},
		Next: func(dir string) any {
			return params{"database": databaseOf(dir), "sql": "DROP TABLE person; CREATE TABLE person (x)"}
		},
		Drift:     sql("INSERT INTO log VALUES ('by someone else')"),
		Meanwhile: sql("INSERT INTO log VALUES ('by someone else')"),
	}
	schemaWAL := schema
	schemaWAL.Name, schemaWAL.Start, schemaWAL.Brief = "schema in WAL mode", start("PRAGMA journal_mode = WAL;"+people),
		true
	query := actiontest.Case{
		Name: "query", Action: "sqlite.query", Undone: activities.Nothing, Brief: true,
		With: func(dir string) any {
			return params{"database": databaseOf(dir), "sql": "SELECT * FROM adult WHERE age > ? ORDER BY id",
				"params": []any{20}}
		},
		Next: func(dir string) any { return params{"database": databaseOf(dir), "sql": "SELECT count(*) FROM log"} },
	}
	all := []actiontest.Case{rows, wal, schema, schemaWAL, query}
	all = append(all, wholeCases()...)
	for i := range all {
		c := &all[i]
		c.Patience = patience
		c.Open, c.Anew, c.Sample, c.EitherWay = open, true, 1, true
		if c.Manifest == nil {
			c.Manifest = dump
		}
		if c.Action == "" {
			c.Action = "sqlite.exec"
		}
		if c.Start == nil {
			c.Start = start(people)
		}
	}
	return all
}

// wholeCases are those of actions on a database as a whole.
func wholeCases() []actiontest.Case {
	restore := actiontest.Case{
		Name: "restore", Action: "sqlite.restore", Start: startWithCheckpoints(""),
		With: func(dir string) any {
			return params{"database": databaseOf(dir), "checkpoint": checkpointNamed("one")}
		},
		Next: func(dir string) any {
			return params{"database": databaseOf(dir), "checkpoint": checkpointNamed("two")}
		},
		Drift:     sql("INSERT INTO log VALUES ('by someone else')"),
		Meanwhile: sql("INSERT INTO log VALUES ('by someone else')"),
	}
	restoreWAL := restore
	restoreWAL.Name, restoreWAL.Start, restoreWAL.Brief = "restore in WAL mode",
		startWithCheckpoints("PRAGMA journal_mode = WAL;"), true
	keep := actiontest.Case{
		Name: "checkpoint", Action: "sqlite.checkpoint", Lapses: true,
		Start: func(t testing.TB, dir string) {
			start(people)(t, dir)
			shell(t, databaseOf(dir)+".other", people)
		},
		With: func(dir string) any { return params{"database": databaseOf(dir)} },
		Next: func(dir string) any { return params{"database": databaseOf(dir) + ".other"} },
		Manifest: func(t testing.TB, dir string) string {
			all, err := filepath.Glob(filepath.Join(dir, "state", "checkpoints", "*"))
			require.NoError(t, err)
			return fmt.Sprintf("%s\n%d checkpoints", dump(t, dir), len(all))
		},
	}
	verify := restore
	verify.Name, verify.Action, verify.Undone, verify.Brief = "verify", "sqlite.verify", activities.Nothing, true
	verify.Drift, verify.Meanwhile = nil, nil
	compare := verify
	compare.Name, compare.Action = "compare", "sqlite.compare"
	return []actiontest.Case{restore, restoreWAL, keep, verify, compare}
}

// startWithCheckpoints makes a database that has changed since each of two checkpoints.
func startWithCheckpoints(mode string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		start(mode+people)(t, dir)
		keepAs(t, dir, "one")
		shell(t, databaseOf(dir), "DELETE FROM team WHERE id = 1; CREATE INDEX logged ON log (line); PRAGMA user_version = 2")
		keepAs(t, dir, "two")
		shell(t, databaseOf(dir), "DROP TABLE tag; ALTER TABLE person ADD COLUMN mail TEXT; INSERT INTO log VALUES ('last')")
	}
}

func tokenNamed(name string) string { return activities.NewToken("start", name, 0) }

func checkpointNamed(name string) string { return "cp-" + tokenNamed(name) }

// keepAs takes a checkpoint with a name.
func keepAs(t testing.TB, dir, name string) {
	w, err := open(dir)
	require.NoError(t, err)
	mark, err := w.Journal(context.Background())
	require.NoError(t, err)
	with, err := json.Marshal(params{"database": databaseOf(dir)})
	require.NoError(t, err)
	e := activities.Entry{Token: tokenNamed(name), Action: "sqlite.checkpoint", Params: with,
		Place: activities.Place{Journal: mark}}
	i := slices.IndexFunc(w.Actions, func(a activities.Action) bool { return a.Spec().Name == e.Action })
	r, err := w.Actions[i].Apply(context.Background(), e, activities.Step{ID: name, With: with}, "")
	require.NoError(t, err)
	require.Equal(t, checkpointNamed(name), r.Outputs["checkpoint"])
}

func databaseOf(dir string) string { return filepath.Join(dir, "data", "app.db") }

func start(script string) func(testing.TB, string) {
	return func(t testing.TB, dir string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
		shell(t, databaseOf(dir), script)
	}
}

func open(dir string) (activities.World, error) {
	return sqlite.New(sqlite.Config{State: filepath.Join(dir, "state"), Roots: []string{filepath.Join(dir, "data")}})
}

// shell is SQLite's own program: it shares nothing with the world.
func shell(t testing.TB, database, script string) string {
	t.Helper()
	c := exec.Command("sqlite3", "-batch", "-bail", database)
	c.Stdin = strings.NewReader(".timeout 10000\n" + script)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func sql(statement string) func(testing.TB, string) {
	return func(t testing.TB, dir string) { shell(t, databaseOf(dir), statement) }
}

// dump is the whole database as text, with the rowids of tables that hide them, but for the marks
// of steps.
func dump(t testing.TB, dir string) string { return dumpOf(t, databaseOf(dir)) }

func dumpOf(t testing.TB, database string) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(shell(t, database,
		".dump\nPRAGMA user_version;\nSELECT rowid, * FROM person;\nSELECT rowid, * FROM log;"), "\n") {
		if !strings.Contains(line, "_unwind_steps") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
