package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/testrun"
)

// TestRandomTransactionsOverRandomSchemas compares dumps before and after. Some tasks have several
// steps, undone in reverse order.
func TestRandomTransactionsOverRandomSchemas(t *testing.T) {
	t.Parallel()
	schemas, tasks := 6, 20
	switch {
	case testrun.Deep():
		schemas, tasks = 40, 50
	case testrun.Plain():
		schemas, tasks = 2, 10
	}
	for n, place := range testrun.Rand(t).Perm(max(schemas, 4))[:schemas] {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			g := generator{testrun.Rand(t), 2 + place%4}
			d := newDatabase(t, g.schema()...)
			done := 0
			for range tasks {
				before := d.dump()
				var steps []*step
				for range 1 + g.IntN(3) {
					var statements []string
					for range 1 + g.IntN(6) {
						statements = append(statements, g.statement())
					}
					s := d.exec(statements...)
					_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
					if err != nil { // a constraint: nothing was changed
						require.Equal(t, activities.ActionDenied, activities.TypeOf(err), "%v\n%s", err, strings.Join(statements, "\n"))
						s.undoAny(activities.Nothing)
						continue
					}
					done++
					steps = append(steps, s)
				}
				for _, s := range slices.Backward(steps) {
					s.undo(activities.Restored)
				}
				require.Equal(t, before, d.dump())
				d.run(g.statementOfOthers()) // the next task begins from something else
			}
			require.Positive(t, done)
		})
	}
}

// undoAny undoes a step of which nobody knows whether it has acted.
func (s *step) undoAny(want activities.Outcome) activities.Undone {
	s.t.Helper()
	return s.decide(activities.Decision{}, want)
}

// TestRandomChangesOfRandomSchemas compares dumps with the schema, and the catalogs. A statement
// that is refused or fails leaves nothing.
func TestRandomChangesOfRandomSchemas(t *testing.T) {
	t.Parallel()
	schemas, tasks := 3, 15
	switch {
	case testrun.Deep():
		schemas, tasks = 20, 15
	case testrun.Plain():
		schemas, tasks = 1, 8
	}
	var tried, exact, refused atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d statements: %d came back exactly, %d were refused", tried.Load(), exact.Load(), refused.Load())
	})
	for n := range schemas {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			g := generator{testrun.Rand(t), 2 + testrun.Rand(t).IntN(3)}
			d := newDatabase(t,
				append(g.schema(), "CREATE VIEW v AS SELECT id, v, n FROM t0", "CREATE VIEW w AS SELECT id FROM v",
					"CREATE INDEX i ON t1 (v)",
					"CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "COMMENT ON COLUMN t0.v IS 'text'",
					"GRANT SELECT ON t1, v TO PUBLIC")...)
			admin := d.server.Admin(d.name)
			for range tasks {
				before, catalogs := d.wholeDump(), readCatalogs(t, admin, false).withoutOurs()
				was, done := before, 0
				var steps []*step
				for range 1 + g.IntN(3) {
					statements := d.accepted(nil, g.alteration)
					for range g.IntN(3) {
						statements = d.accepted(statements, func() string { return []string{g.alteration(), g.statement()}[g.IntN(2)] })
					}
					tried.Add(int64(len(statements)))
					s := d.exec(statements...)
					if _, err := s.action.Apply(t.Context(), s.entry, s.with, ""); err != nil {
						require.Contains(t, []activities.ErrorType{activities.ActionDenied, activities.Refused}, activities.TypeOf(err),
							"%v\n%s", err, strings.Join(statements, "\n"))
						require.Equal(t, was, d.wholeDump(), strings.Join(statements, "\n"))
						refused.Add(int64(len(statements)))
						continue
					}
					done += len(statements)
					steps = append(steps, s)
					was = d.wholeDump()
				}
				for _, s := range slices.Backward(steps) {
					s.undo(activities.Restored)
				}
				require.Equal(t, before, d.wholeDump())
				require.Empty(t, readCatalogs(t, admin, false).withoutOurs().compare(catalogs))
				exact.Add(int64(done))
			}
		})
	}
}

// accepted adds one more statement to those of a step, drawn so that the server runs them all.
func (d *database) accepted(statements []string, draw func() string) []string {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	for {
		more := append(slices.Clone(statements), draw())
		_, err := conn.PgConn().Exec(d.t.Context(), strings.Join(append(more, "SELECT 1 / 0"), "; ")).ReadAll()
		if server.IsCode(err, "22012") { // they ran, and were rolled back
			return more
		}
	}
}

// alteration is a statement that changes what is there, now and then under a name that an earlier
// one has given.
func (g generator) alteration() string {
	table := []string{"t0", "t1", "other"}[g.IntN(3)]
	column := []string{"v", "n", "up", "at", "x"}[g.IntN(5)]
	all := []string{
		fmt.Sprintf("ALTER TABLE %s RENAME %s TO x", table, column),
		fmt.Sprintf("ALTER TABLE %s RENAME id TO key", table),
		fmt.Sprintf("ALTER TABLE %s RENAME TO other", table),
		fmt.Sprintf("ALTER TABLE %s ALTER %s SET DEFAULT NULL", table, column),
		fmt.Sprintf("ALTER TABLE %s ALTER %s DROP DEFAULT", table, column),
		fmt.Sprintf("ALTER TABLE %s ALTER %s SET NOT NULL", table, column),
		fmt.Sprintf("ALTER TABLE %s ADD CHECK (%s IS NOT NULL)", table, column),
		fmt.Sprintf("ALTER TABLE %s ADD extra int DEFAULT 7", table),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %[1]s_pkey CASCADE", table),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %[1]s_n_key", table),
		fmt.Sprintf("CREATE UNIQUE INDEX ON %s (%s, id)", table, column),
		fmt.Sprintf("CREATE OR REPLACE VIEW v AS SELECT id, v, %d AS n FROM %s", g.IntN(9), table),
		fmt.Sprintf("CREATE OR REPLACE VIEW w AS SELECT id, %s FROM %s", column, table),
		fmt.Sprintf("COMMENT ON COLUMN %s.%s IS 'c%d'", table, column, g.IntN(3)),
		fmt.Sprintf("GRANT INSERT, UPDATE (%s) ON %s TO PUBLIC", column, table),
		fmt.Sprintf("REVOKE ALL ON %s FROM PUBLIC", table),
		fmt.Sprintf("ALTER TABLE %s DROP %s", table, column),
		fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s CASCADE", table, column),
		fmt.Sprintf("TRUNCATE %s CASCADE", table),
		fmt.Sprintf("DROP TABLE %s CASCADE", table),
		"DROP INDEX i", "DROP VIEW w", "DROP VIEW v CASCADE", "REVOKE ALL ON v FROM PUBLIC", "ALTER VIEW v RENAME TO view2",
		"CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 2'", "ALTER FUNCTION f(int) RENAME TO g",
	}
	return all[g.IntN(len(all))]
}

// generator draws tables with keys, references between them, and triggers, and statements on them.
type generator struct {
	*rand.Rand

	tables int
}

func (g generator) schema() []string {
	actions := []string{"ON DELETE CASCADE ON UPDATE CASCADE", "ON DELETE SET NULL", "DEFERRABLE INITIALLY DEFERRED", ""}
	var keys, tables, rest []string
	for i := range g.tables {
		keys = append(keys, []string{"int", "numeric"}[g.IntN(2)])
		tables = append(tables,
			fmt.Sprintf("CREATE TABLE t%d (id %s PRIMARY KEY, v text, n int %s, up %s, at timestamptz DEFAULT now())", i,
				keys[i],
				[]string{"", "UNIQUE", "UNIQUE DEFERRABLE"}[g.IntN(3)], keys[i]))
		if parent := g.IntN(i + 1); g.IntN(4) > 0 && keys[parent] == keys[i] {
			rest = append(rest,
				fmt.Sprintf("ALTER TABLE t%d ADD FOREIGN KEY (up) REFERENCES t%d %s", i, parent, actions[g.IntN(len(actions))]))
		}
	}
	for i := range g.tables {
		rest = append(rest, fmt.Sprintf("INSERT INTO t%d SELECT g, md5(g::text), g FROM generate_series(1, 12) g", i))
	}
	if g.IntN(2) == 0 {
		rest = append(rest, fmt.Sprintf(`CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF pg_trigger_depth() = 1 THEN UPDATE t%d SET v = v || '.' WHERE id = %d; DELETE FROM t%d WHERE id = OLD.id + 1;
			END IF; RETURN NULL; END $$`,
			g.IntN(g.tables), 1+g.IntN(12), g.IntN(g.tables)),
			fmt.Sprintf(`CREATE TRIGGER "%s" AFTER UPDATE OR DELETE ON t%d FOR EACH ROW EXECUTE FUNCTION touch()`,
				[]string{" a", "z"}[g.IntN(2)], g.IntN(g.tables)))
	}
	return append(tables, rest...)
}

func (g generator) statement() string {
	table, other, id := fmt.Sprintf("t%d", g.IntN(g.tables)), fmt.Sprintf("t%d", g.IntN(g.tables)), 1+g.IntN(20)
	return []string{
		fmt.Sprintf("DELETE FROM %s WHERE id %% 5 = %d", table, id%5),
		fmt.Sprintf("UPDATE %s SET v = v || 'x' WHERE id < %d", table, id),
		fmt.Sprintf("UPDATE %s SET id = id + %d WHERE id > %d", table, 20+id, id),
		fmt.Sprintf("UPDATE %s SET n = -n, v = NULL WHERE id %% 2 = 0", table),
		fmt.Sprintf("UPDATE %s SET up = (SELECT min(id) FROM %s) WHERE id = %d", table, other, id),
		fmt.Sprintf("INSERT INTO %s (id, v, n) VALUES (%d, 'new', %d) ON CONFLICT (id) DO NOTHING", table, id, id+100),
		fmt.Sprintf(
			"INSERT INTO %[1]s (id, v) SELECT id + 50, v FROM %[1]s WHERE id < %[2]d ON CONFLICT (id) DO UPDATE SET v = "+
				"excluded.v || '!'", table, id),
		fmt.Sprintf(
			"WITH gone AS (DELETE FROM %s WHERE id = %d RETURNING *) INSERT INTO %s (id, v) SELECT id + 70, v FROM gone ON "+
				"CONFLICT (id) DO NOTHING", table, id, other),
		fmt.Sprintf(
			"MERGE INTO %s t USING generate_series(%d, %d) g ON g = t.id WHEN MATCHED AND g %% 2 = 0 THEN DELETE WHEN "+
				"MATCHED THEN UPDATE SET n = NULL WHEN NOT MATCHED THEN INSERT (id, v) VALUES (g, 'merged')", table, id, id+4),
	}[g.IntN(9)]
}

func (g generator) statementOfOthers() string {
	return fmt.Sprintf("UPDATE t%d SET at = now(), v = 'theirs' WHERE id = %d", g.IntN(g.tables), 1+g.IntN(12))
}
