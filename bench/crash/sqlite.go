package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/sqlite"
)

// inSQLite is one step that changes a SQLite database of its own.
type inSQLite struct {
	Host int
	// Alters makes the step change the schema too: it is undone by a checkpoint of the file.
	Alters bool
	// WAL has the database written by a write-ahead log.
	WAL bool

	id            string
	on            string
	state         string // the worker's
	path          string
	before, after string // dumps; after is that of a twin on which the statements ran without us
}

func drawSQLite(r *rand.Rand, hosts int) *inSQLite {
	return &inSQLite{Host: r.IntN(hosts), Alters: r.IntN(3) == 0, WAL: r.IntN(2) == 0}
}

const (
	sqliteTables = `CREATE TABLE account (id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL UNIQUE,
		balance INTEGER NOT NULL DEFAULT 0);
CREATE TABLE entry (account INTEGER REFERENCES account ON DELETE CASCADE, n INTEGER, PRIMARY KEY (account, n)) WITHOUT
ROWID;
CREATE TABLE tally (n INTEGER);
CREATE TABLE spare (a TEXT);
CREATE TRIGGER counts AFTER UPDATE ON account BEGIN UPDATE tally SET n = n + 1; END;
INSERT INTO account (owner, balance) VALUES ('ann', 10), ('bob', 20), ('cy', 30), ('dee', 40);
INSERT INTO entry SELECT id, 1 FROM account UNION ALL SELECT id, 2 FROM account;
INSERT INTO tally VALUES (0);
INSERT INTO spare VALUES ('kept'), (NULL);
`
	sqliteRows = `UPDATE account SET balance = balance + 1 WHERE id < 4; DELETE FROM account WHERE id = 4;
		INSERT INTO account (owner) VALUES ('eve')`
	// alterSQLite comes before sqliteRows.
	alterSQLite = `DROP TABLE spare; ALTER TABLE account ADD COLUMN age INTEGER DEFAULT 7;
		CREATE INDEX owners ON account (owner, age); PRAGMA user_version = 3; `
)

func hasSQLite() error {
	_, err := exec.LookPath("sqlite3")
	return err
}

// runSQLite runs SQLite's own program, which shares nothing with the world.
func runSQLite(ctx context.Context, path, script string) (string, error) {
	c := exec.CommandContext(ctx, "sqlite3", "-batch", "-bail", path)
	c.Stdin = strings.NewReader(".timeout 20000\n" + script)
	said, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("sqlite3 %s: %w: %s", path, err, said)
	}
	return string(said), nil
}

func dumpSQLite(ctx context.Context, path string) (string, error) {
	return runSQLite(ctx, path, ".dump --preserve-rowids\nPRAGMA user_version;")
}

func (r *run) setSQLite(context.Context) error {
	for _, m := range r.fleet.members {
		m.Config = m.With(&sqlite.Settings{Roots: []string{m.data()}})
	}
	return nil
}

func (p *inSQLite) name(n int) { p.id = fmt.Sprintf("sqlite-%d", n) }

func (p *inSQLite) actions() []string { return []string{"sqlite.exec"} }

func (p *inSQLite) firstStep() string { return p.id }

func (p *inSQLite) host() (int, bool) { return p.Host, true }

func (p *inSQLite) statements() string {
	if p.Alters {
		return alterSQLite + sqliteRows
	}
	return sqliteRows
}

// comesTo says whether the step reaches a point of its action.
func (p *inSQLite) comesTo(label string) bool {
	return label != "sqlite.exec:copied" || p.Alters
}

func (p *inSQLite) setUp(ctx context.Context, r *run, task string) (err error) {
	m := r.fleet.members[p.Host]
	p.on, p.state = m.Host, m.State
	dir := filepath.Join(m.data(), task, p.id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p.path = filepath.Join(dir, "app.db")
	twin := filepath.Join(dir, "twin.db")
	script := sqliteTables
	if p.WAL {
		script = "PRAGMA journal_mode = WAL;\n" + script
	}
	for _, path := range []string{p.path, twin} {
		if _, err := runSQLite(ctx, path, script); err != nil {
			return err
		}
	}
	if p.before, err = dumpSQLite(ctx, p.path); err != nil {
		return err
	}
	if _, err := runSQLite(ctx, twin, "PRAGMA foreign_keys = ON; BEGIN; "+p.statements()+"; COMMIT;"); err != nil {
		return err
	}
	p.after, err = dumpSQLite(ctx, twin)
	return err
}

func (p *inSQLite) steps() []map[string]any {
	return []map[string]any{{"id": p.id, "uses": "sqlite.exec", "on": p.on,
		"with": map[string]any{"database": p.path, "sql": p.statements()}}}
}

func (p *inSQLite) judgePart(ctx context.Context, _ *run, e taskEnd) (v verdict, err error) {
	now, err := dumpSQLite(ctx, p.path)
	if err != nil {
		return v, err
	}
	content, marks := splitMarks(now)
	v.compareDumps(p.id, p.before, p.after, content, e)
	switch {
	case e.committed() && marks != 1:
		v.Lost = append(v.Lost,
			fmt.Sprintf("%s: %d steps have left their mark in the database, and 1 has committed", p.id, marks))
	case !e.committed() && strings.Contains(now, markTable):
		v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: table %s is left over in the database", p.id, markTable))
	}
	for _, token := range e.tokens(p.id) {
		if e.committed() && token == e.token(p.id) {
			break
		}
		for _, what := range []string{"rows-*", "checkpoint-*"} {
			left, err := filepath.Glob(filepath.Join(p.state, "sqlite", "journal", "*", token, what))
			if err != nil {
				return v, err
			}
			for _, path := range left {
				v.Orphaned = append(v.Orphaned, path+" is left over")
			}
		}
	}
	return v, nil
}

// markTable is where the world marks in a database which steps have committed there.
const markTable = "_unwind_steps"

// splitMarks returns a dump without the world's marks, and how many those are.
func splitMarks(dump string) (content string, marks int) {
	var lines []string
	for line := range strings.SplitSeq(dump, "\n") {
		switch {
		case !strings.Contains(line, markTable):
			lines = append(lines, line)
		case strings.HasPrefix(line, "INSERT"):
			marks++
		}
	}
	return strings.Join(lines, "\n"), marks
}

// compareDumps compares a database with how the task ended: it is as the statements leave it when
// they run once, or as before.
func (v *verdict) compareDumps(id, before, after, now string, e taskEnd) {
	switch {
	case e.committed() && now == after, !e.committed() && now == before:
	case !e.committed():
		v.Lost = append(v.Lost, fmt.Sprintf("%s: the database is not as before: %s", id, firstDifference(before, now)))
	case now == before:
		v.Lost = append(v.Lost, id+": the database is as before, and the task has committed")
	default:
		v.Doubled = append(v.Doubled,
			fmt.Sprintf("%s: the statements have not run exactly once: %s", id, firstDifference(after, now)))
	}
}

// firstDifference is the first line in which two dumps differ.
func firstDifference(want, is string) string {
	wanted, found := strings.Split(want, "\n"), strings.Split(is, "\n")
	for i := range max(len(wanted), len(found)) {
		line := func(all []string) string {
			if i < len(all) {
				return all[i]
			}
			return ""
		}
		if line(wanted) != line(found) {
			return fmt.Sprintf("line %d is %q, and should be %q", i+1, line(found), line(wanted))
		}
	}
	return ""
}

func (p *inSQLite) clear(context.Context, *run) error { return nil }

func (p *inSQLite) String() string {
	return fmt.Sprintf("%s on host %d: alters %v, WAL %v", p.id, p.Host, p.Alters, p.WAL)
}
