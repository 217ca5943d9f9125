package postgres_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// replayVariable names a folder of files for psql, such as the server's own regression tests.
const replayVariable = "UNWIND_TEST_SQL"

// ofPsql matches what is for psql, not for the server.
var ofPsql = regexp.MustCompile(`(?mi)^copy .*stdin.*;\n(?:.*\n)*?\\\.$|^\\.*$|\\g\w*`)

// TestReplay runs the statements of files as steps, undoes a few of them at a time, compares, and
// then runs them as they are. A file setup.sql runs before each of the files. What only reads, and
// what is within a transaction of the file, is no step.
func TestReplay(t *testing.T) {
	t.Parallel()
	folder := os.Getenv(replayVariable)
	if folder == "" {
		t.Skipf("%s names no folder of SQL files", replayVariable)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.sql"))
	require.NoError(t, err)
	setup := filepath.Join(folder, "setup.sql")
	for _, file := range files {
		if file == setup {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			postgrestest.Need(t)
			own, err := postgrestest.Quick()
			require.NoError(t, err)
			t.Cleanup(own.Stop)
			r := &replay{database: &database{t: t, server: own, name: "d", dsn: own.Admin("d")}, count: map[string]int{}}
			postgrestest.Exec(t, own.Admin("postgres"), "CREATE DATABASE d")
			r.conn, err = pgx.Connect(t.Context(), r.dsn)
			require.NoError(t, err)
			defer func() { _ = r.conn.Close(context.Background()) }()
			for _, sql := range readStatements(t, setup) {
				_ = r.perform(t, sql) // a server may lack what it needs
			}
			r.limit(postgres.Database{})
			first := r.exec("CREATE TABLE seen (a int)") // it makes the journal
			first.apply()
			first.undo(activities.Restored)
			was := r.describe(t)
			r.run("CREATE TABLE seen (a int)")
			require.NotEmpty(t, r.describe(t).compare(*was), "nothing is compared")
			r.run("DROP TABLE seen")
			for _, sql := range readStatements(t, file) {
				r.step(t, sql)
			}
			r.endChain(t)
		})
	}
}

// readStatements reads a file; none if it is not there.
func readStatements(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	all, _ := statement.Split(ofPsql.ReplaceAllString(string(content), ";"))
	return all
}

// replay is a database on which the statements of a file run.
type replay struct {
	*database

	conn  *pgx.Conn
	was   *catalogs // what it was before the chain; nil where nobody has looked
	chain []*step   // steps that are not undone yet
	texts []string  // their statements
	count map[string]int
}

// perform runs a statement as it is, in the session of the file.
func (r *replay) perform(t *testing.T, sql string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := r.conn.PgConn().Exec(ctx, sql).ReadAll()
	if r.conn.IsClosed() {
		r.conn, err = pgx.Connect(t.Context(), r.dsn)
		require.NoError(t, err)
	}
	return err
}

// step runs a statement as a step, in a chain of such, or as it is.
func (r *replay) step(t *testing.T, sql string) {
	t.Helper()
	_, words := statement.Split(sql)
	switch {
	case r.conn.PgConn().TxStatus() != 'I':
		_ = r.perform(t, sql)
		r.was = nil
		return
	case slices.Contains([]string{"select", "values", "table", "explain", "show"}, words[0][0]):
		return
	}
	r.count["steps"]++
	var err error
	if err = statement.Check("", words[0]); err == nil {
		if r.was == nil {
			r.was = r.describe(t)
		}
		s := r.exec(sql)
		_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
		if err == nil {
			r.chain, r.texts = append(r.chain, s), append(r.texts, sql)
			if len(r.chain) == 8 {
				r.endChain(t)
			}
			return
		}
	}
	switch activities.TypeOf(err) {
	case activities.Refused:
		r.count["refused"]++
	case activities.ActionDenied:
		r.count["failed"]++
	default:
		t.Errorf("%s: %v", sql, err)
	}
	if err := r.perform(t, "BEGIN; "+sql+"; ROLLBACK"); err != nil && r.perform(t, "ROLLBACK") == nil {
		return // the server rejects it
	}
	r.endChain(t)
	_ = r.perform(t, sql)
	r.was = nil
}

// endChain undoes the steps of a chain, the last one first, compares, and runs the statements as
// they are.
func (r *replay) endChain(t *testing.T) {
	t.Helper()
	if r.chain == nil {
		return
	}
	all := strings.Join(r.texts, ";\n")
	isUndone := true
	for _, s := range slices.Backward(r.chain) {
		u, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
		if err != nil || u.Outcome != activities.Restored {
			t.Errorf("not undone: %v %+v\n%s", err, u, all)
			isUndone = false
			break
		}
	}
	outcome := "not undone"
	if isUndone {
		outcome = "restored"
		if differences := r.describe(t).compare(*r.was); len(differences) > 0 {
			outcome = "wrong"
			t.Errorf("was told to be restored:\n%s\n%s", all, strings.Join(differences, "\n"))
		}
	}
	r.count[outcome] += len(r.chain)
	for _, sql := range r.texts {
		_ = r.perform(t, sql)
	}
	r.chain, r.texts, r.was = nil, nil, nil
	t.Log(r.count)
}

// describe is all that the database holds: the catalogs, what the server writes of expressions, and
// digests of the rows.
func (r *replay) describe(t *testing.T) *catalogs {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	all := readCatalogsIn(t, conn, true).withoutOurs()
	//nolint:dupword // arguments
	const written = `SELECT line FROM (
		SELECT pg_get_ruledef(oid) FROM pg_rewrite WHERE oid >= 16384
		UNION ALL SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint WHERE oid >= 16384
		UNION ALL SELECT format('%s %s %s', adrelid::regclass, attname, pg_get_expr(adbin, adrelid)) FROM pg_attrdef
			JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum WHERE adrelid >= 16384
		UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON oid = indexrelid
			WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgname !~ 'unwind'
		UNION ALL SELECT format('%s %s %s', polname, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
			FROM pg_policy
		UNION ALL SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE prokind <> 'a' AND oid >= 16384
		UNION ALL SELECT format('%s %s', partrelid::regclass, pg_get_partkeydef(partrelid)) FROM pg_partitioned_table
		UNION ALL SELECT format('%s %s', oid::regclass, pg_get_expr(relpartbound, oid)) FROM pg_class WHERE relispartition
		UNION ALL SELECT format('%s %s', prrelid::regclass, pg_get_expr(prqual, prrelid)) FROM pg_publication_rel
		UNION ALL SELECT format('%s %s', oid::regclass, query_to_xml(format('SELECT count(*),
			sum(hashtextextended((q.*)::text, 0)) FROM ONLY %s q', oid::regclass), false, false, '')) FROM pg_class
			WHERE oid >= 16384 AND relispopulated AND relkind IN ('r', 'm') AND relpersistence <> 't'
		) s(line) WHERE line !~ '^"?(SCHEMA )?unwind'`
	rows, err := conn.Query(t.Context(), written)
	require.NoError(t, err)
	more, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, line := range more {
		if !strings.Contains(line, "unwind.") {
			all.rows = append(all.rows, "as written: "+line)
		}
	}
	slices.Sort(all.rows)
	return &all
}
