package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
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
	for i := range all {
		c := &all[i]
		c.Patience = patience
		c.Open, c.Manifest, c.Anew, c.Sample, c.EitherWay = open, dump, true, 1, true
		if c.Action == "" {
			c.Action = "sqlite.exec"
		}
		if c.Start == nil {
			c.Start = start(people)
		}
	}
	return all
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
