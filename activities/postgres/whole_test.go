package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// keeper is a role that may put checkpoints back: a member of the role that owns the databases,
// which may make others.
const keeper = "keeper"

var makeKeeper sync.Once

func keeperDSN(t testing.TB, server *postgrestest.Server, database string) string {
	makeKeeper.Do(func() {
		server.Exec(t, server.Admin("postgres"), "CREATE ROLE "+keeper+" LOGIN CREATEDB IN ROLE "+postgrestest.Role,
			"CREATE ROLE other")
	})
	return fmt.Sprintf("host=%s user=%s dbname=%s", server.Dir, keeper, database)
}

// checkpointCase is a checkpoint with what comes after it: a migration that Unwind does not see.
// The suite looks at what a step changes, and a checkpoint alone changes nothing.
var checkpointCase = actiontest.Case{
	Name: "checkpoint", Action: "postgres.checkpoint", Open: openMigrating, Manifest: dumpIn,
	Start:     startWhole,
	With:      func(string) any { return map[string]any{"database": "main", "exclusive": true} },
	Next:      func(string) any { return map[string]any{"database": "again", "exclusive": true} },
	EitherWay: true, Sample: 1, Anew: true,
}

// copyCase is the same with a copy.
var copyCase = func() actiontest.Case {
	c := checkpointCase
	c.Name, c.Brief = "checkpoint as a copy", true
	c.With = func(string) any { return map[string]any{"database": "main", "exclusive": true, "as": "copy"} }
	c.Next = func(string) any { return map[string]any{"database": "again", "exclusive": true, "as": "copy"} }
	c.Own = []string{"postgres.checkpoint:copying", "postgres.checkpoint:copied", "postgres.checkpoint:named"}
	return c
}()

func openMigrating(dir string) (activities.World, error) {
	database := postgres.Database{DSN: func() (string, error) { return dsnIn(dir) }}
	w, err := postgres.New(postgres.Config{State: filepath.Join(dir, "state"),
		Databases: map[string]postgres.Database{"main": database, "again": database}})
	for i, a := range w.Actions {
		if a.Spec().Name == "postgres.checkpoint" {
			w.Actions[i] = migrating{a, dir}
		}
	}
	return w, err
}

// migrating is a checkpoint and, while it stands, a migration.
type migrating struct {
	activities.Action

	dir string
}

// alone runs do while no other process does, for this token.
func (m migrating) alone(token string, do func(ended string) error) error {
	f, err := os.OpenFile(filepath.Join(m.dir, "migration-"+token), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return do(f.Name() + "-ended")
}

func (m migrating) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	r, err := m.Action.Apply(ctx, e, s, want)
	if err != nil {
		return r, err
	}
	return r, m.alone(e.Token, func(ended string) error {
		if _, err := os.Stat(ended); err == nil {
			return nil
		}
		dsn, err := dsnIn(m.dir)
		if err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		var with struct{ Database string }
		if err := json.Unmarshal(s.With, &with); err != nil {
			return err
		}
		_, err = conn.Exec(ctx,
			fmt.Sprintf(`ALTER TABLE account ADD COLUMN IF NOT EXISTS "%[1]s" int; UPDATE account SET owner = id || ' of %[1]s';
				DELETE FROM entry WHERE n = 2`, with.Database))
		return err
	})
}

func (m migrating) end(token string) error {
	return m.alone(token, func(ended string) error { return os.WriteFile(ended, nil, 0o600) })
}

func (m migrating) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if err := m.end(e.Token); err != nil {
		return activities.Undone{}, err
	}
	return m.Action.Undo(ctx, e, d)
}

// newWhole is a database of which checkpoints can be taken.
func newWhole(t testing.TB, statements ...string) *database {
	t.Helper()
	d := newDatabase(t, statements...)
	d.dsn = keeperDSN(t, d.server, d.name)
	d.keepCheckpoints(postgres.Database{})
	return d
}

// keepCheckpoints opens the world anew, with a folder of its own for checkpoints.
func (d *database) keepCheckpoints(limits postgres.Database) {
	d.t.Helper()
	d.state = d.t.TempDir()
	d.openCheckpoints(limits)
}

// openCheckpoints opens the world anew, with what is in its folder.
func (d *database) openCheckpoints(limits postgres.Database) {
	d.t.Helper()
	d.openIn(limits, d.state)
	var err error
	d.place, err = d.world.Journal(context.Background())
	require.NoError(d.t, err)
}

// openIn opens the world with a folder for checkpoints.
func (d *database) openIn(limits postgres.Database, state string) {
	d.t.Helper()
	limits.DSN = func() (string, error) { return d.dsn, nil }
	var err error
	d.world, err = postgres.New(postgres.Config{State: state, Databases: map[string]postgres.Database{"main": limits}})
	require.NoError(d.t, err)
}

func (d *database) checkpoint(exclusive bool) *step {
	d.t.Helper()
	return d.step("postgres.checkpoint", map[string]any{"database": "main", "exclusive": exclusive})
}

// migrate does what a migration tool might.
func (d *database) migrate() {
	d.t.Helper()
	d.run("ALTER TABLE account ALTER id TYPE bigint", "DROP TABLE entry", "CREATE TABLE migrations AS SELECT 1 AS n",
		"UPDATE account SET owner = 'x' || owner WHERE id > 3",
		"DELETE FROM account WHERE id = 1")
}

// TestAMigrationIsTakenBackWhole restores rows and the schema; what was replaced is kept until the
// release.
func TestAMigrationIsTakenBackWhole(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts, "CREATE VIEW rich AS SELECT owner FROM account WHERE balance > 50",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	d.asAdmin("ALTER DATABASE "+d.name+" SET work_mem = '5MB'", "COMMENT ON DATABASE "+d.name+" IS 'it''s of\nthe shop'",
		"GRANT CREATE ON DATABASE "+d.name+" TO other")
	const properties = `SELECT concat_ws(' ', datdba::regrole, datacl, encoding, datcollate, shobj_description(oid,
		'pg_database'),
		(SELECT string_agg(s::text, ' ') FROM (SELECT setrole, setconfig FROM pg_db_role_setting WHERE setdatabase = d.oid
		ORDER BY 1) s)) FROM pg_database d WHERE datname = current_database()`
	before, about := d.wholeDump(), d.value(properties)
	s := d.checkpoint(true)
	require.Contains(t, fmt.Sprint(s.plan().Facts), "restores the whole database")
	result := s.apply()
	d.migrate()
	d.asAdmin("ALTER DATABASE " + d.name + " SET work_mem = '7MB'")
	migrated := d.wholeDump()

	u := s.undo(activities.Restored)
	require.Contains(t, u.Observed, "unwind_kept_"+s.entry.Token)
	require.Equal(t, before, d.wholeDump())
	require.Equal(t, about, d.value(properties))
	require.Equal(t, u, s.undo(activities.Restored))
	kept := &database{t: t, server: d.server, name: "unwind_kept_" + s.entry.Token}
	require.Equal(t, migrated, kept.wholeDump())
	size, err := strconv.ParseInt(d.value("SELECT pg_database_size('"+kept.name+"')"), 10, 64)
	require.NoError(t, err)
	require.InDelta(t, result.Outputs["bytes"].(int64)+size, s.bytes(), 20_000, "besides them there are a few documents")

	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_database WHERE datname LIKE '%"+s.entry.Token+"%'"))
	found, err := filepath.Glob(filepath.Join(d.state, "journal", "tokens", s.entry.Token, "dump-*"))
	require.NoError(t, err)
	require.Empty(t, found)
}

// bytes returns what the record of a step takes, as retention is told.
func (s *step) bytes() int64 {
	s.t.Helper()
	all, problems, err := s.world.Records.Records(s.t.Context())
	require.NoError(s.t, err)
	require.Empty(s.t, problems)
	i := slices.IndexFunc(all, func(r activities.Record) bool { return r.Entry.Token == s.entry.Token })
	require.GreaterOrEqual(s.t, i, 0)
	return all[i].Bytes
}

func TestADatabaseThatHasNotChangedStaysInPlace(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	oid := d.value("SELECT oid FROM pg_database WHERE datname = current_database()")
	s := d.checkpoint(false)
	s.apply()
	d.run("UPDATE account SET balance = balance", "VACUUM FULL account", "SELECT nextval('account_id_seq')")
	s.undo(activities.Restored)
	require.Equal(t, oid, d.value("SELECT oid FROM pg_database WHERE datname = current_database()"))
}

// TestASchemaWithANameLikeOursIsAPartOfTheDatabase: it is not the journal.
func TestASchemaWithANameLikeOursIsAPartOfTheDatabase(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts,
		"CREATE SCHEMA unwind_app; CREATE TABLE unwind_app.t AS SELECT 1 AS n; COMMENT ON SCHEMA unwind_app IS 'x'")
	before := d.wholeDump()
	for _, migration := range []string{"UPDATE unwind_app.t SET n = 2", "COMMENT ON SCHEMA unwind_app IS 'y'",
		"DROP SCHEMA unwind_app CASCADE"} {
		s := d.checkpoint(true)
		s.apply()
		d.run(migration)
		require.NotEqual(t, before, d.wholeDump(), migration)
		s.undo(activities.Restored)
		require.Equal(t, before, d.wholeDump(), migration)
	}
}

// TestWithoutExclusiveAPersonIsAsked forces exactly what was shown.
func TestWithoutExclusiveAPersonIsAsked(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	before := d.wholeDump()
	s := d.checkpoint(false)
	s.apply()
	d.migrate()
	shown := s.undo(activities.Drifted).Drift
	for _, line := range []string{"~ table public.account: defined in another way",
		"~ table data public.account: 10 rows then, 9 now, with other values", "- table data public.entry: 30 rows",
		"+ table public.migrations"} {
		require.Contains(t, shown.Diff, line)
	}
	require.Equal(t, shown, s.undo(activities.Drifted).Drift)
	d.run("INSERT INTO migrations VALUES (2)")
	newer := d.wholeDump()
	second := s.decide(activities.Decision{Done: true, Force: shown.Digest}, activities.Drifted).Drift
	require.Equal(t, newer, d.wholeDump())
	s.decide(activities.Decision{Done: true, Force: second.Digest}, activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestEarlierStepsAreUndoneInTheRestoredDatabase which is another one for its server.
func TestEarlierStepsAreUndoneInTheRestoredDatabase(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	before := d.wholeDump()
	rows := d.exec("UPDATE account SET balance = 1 WHERE id < 4", "DELETE FROM entry WHERE n = 3",
		"INSERT INTO account (owner) VALUES ('new')")
	rows.apply()
	outer := d.checkpoint(true)
	outer.apply()
	d.run("UPDATE account SET owner = 'between' WHERE id = 5")
	more := d.exec("UPDATE account SET balance = 2 WHERE id < 4")
	more.apply()
	inner := d.checkpoint(true)
	inner.apply()
	d.migrate()
	inner.undo(activities.Restored)
	more.undo(activities.Restored)
	outer.undo(activities.Restored)
	rows.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())

	// What was done and taken back before the checkpoint was restored stays known, and others may go
	// on.
	_, err := more.action.Apply(t.Context(), more.entry, more.with, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	place, err := d.world.Journal(t.Context())
	require.NoError(t, err)
	d.place = place
	next := d.exec("UPDATE account SET balance = 3 WHERE id < 4")
	next.apply()
	next.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestACheckpointThatIsNotAsItWasWritten is not put back.
func TestACheckpointThatIsNotAsItWasWritten(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	s, other := d.checkpoint(true), d.checkpoint(true)
	s.apply()
	d.migrate()
	other.apply()
	left := d.wholeDump()
	dumpOf := func(s *step) string {
		found, err := filepath.Glob(filepath.Join(d.state, "journal", "tokens", s.entry.Token, "dump-*"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	file := dumpOf(s)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	foreign, err := os.ReadFile(dumpOf(other))
	require.NoError(t, err)
	for _, harm := range [][]byte{nil, content[:len(content)/2], foreign} {
		require.NoError(t, os.Remove(file))
		if harm != nil {
			require.NoError(t, os.WriteFile(file, harm, 0o600))
		}
		_, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
		require.Equal(t, left, d.wholeDump())
		require.NoError(t, os.WriteFile(file, content, 0o600))
	}
	s.undo(activities.Restored)
}

// TestASessionThatCannotBeEnded is told, and all stays as it is until it has ended.
func TestASessionThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	before := d.wholeDump()
	s := d.checkpoint(true)
	s.apply()
	d.migrate()
	left := d.wholeDump()
	conn, err := pgx.Connect(t.Context(), d.server.Admin(d.name))
	require.NoError(t, err)
	_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.ErrorContains(t, err, "of postgres uses it")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	require.Equal(t, left, d.wholeDump())
	require.NoError(t, conn.Close(t.Context()))

	busy, err := pgx.Connect(t.Context(), d.server.DSN(d.name)) // one of the application is ended
	require.NoError(t, err)
	s.undo(activities.Restored)
	require.Error(t, busy.Ping(t.Context()))
	require.Equal(t, before, d.wholeDump())
}

// TestACheckpointThatCouldNotBePutBackIsRefused before it is taken.
func TestACheckpointThatCouldNotBePutBackIsRefused(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	s := d.checkpoint(true)
	d.asAdmin("CREATE TABLE theirs (a int)")
	s.refused("belong to postgres")
	d.asAdmin("DROP TABLE theirs")
	d.asAdmin("CREATE FUNCTION pg_catalog.kept() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER FUNCTION pg_catalog.kept OWNER TO worker")
	s.refused("it has function kept() in a schema of the server, which a dump leaves out")
	d.asAdmin("DROP FUNCTION pg_catalog.kept")
	d.keepCheckpoints(postgres.Database{Deny: []string{"public.entry"}})
	d.checkpoint(true).refused("limits the tables")
	d.dsn = d.server.DSN(d.name)
	d.keepCheckpoints(postgres.Database{})
	d.checkpoint(true).refused("must have CREATEDB")

	d.dsn = keeperDSN(t, d.server, d.name)
	d.keepCheckpoints(postgres.Database{})
	d.asAdmin("CREATE FUNCTION onlyroot() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
		"CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION onlyroot()",
		"ALTER FUNCTION onlyroot OWNER TO worker")
	_, err := d.checkpoint(true).action.Apply(t.Context(), d.checkpoint(true).entry, d.checkpoint(true).with, "")
	require.ErrorContains(t, err, "could not be put back")
	require.Equal(t, activities.Refused, activities.TypeOf(err))
}

// TestACheckpointWhoseRowsCouldNotBePutBackIsRefused: a function that is made for the search path
// of applications fails under that of pg_restore, as soon as there is a row.
func TestACheckpointWhoseRowsCouldNotBePutBackIsRefused(t *testing.T) {
	t.Parallel()
	d := newWhole(t, "CREATE FUNCTION double(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2'",
		"CREATE FUNCTION f(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN double(n); END'")
	for _, table := range []string{
		"CREATE TABLE t (n int, m int GENERATED ALWAYS AS (f(n)) STORED)", "CREATE TABLE t (n int); CREATE INDEX ON t (f(n))",
		"CREATE TABLE t (n int CHECK (f(n) > 0))",
	} {
		d.run(table, "INSERT INTO t VALUES (1)")
		s := d.checkpoint(true)
		_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
		require.ErrorContains(t, err, "could not be put back by the worker's role", table)
		require.ErrorContains(t, err, "function double(integer) does not exist", table)
		require.Equal(t, activities.Refused, activities.TypeOf(err))
		d.run("DROP TABLE t")
	}
	d.run("ALTER FUNCTION f SET search_path = public",
		"CREATE TABLE t (n int CHECK (f(n) > 0), m int GENERATED ALWAYS AS (f(n)) STORED)", "INSERT INTO t VALUES (1)")
	before := d.wholeDump()
	s := d.checkpoint(true)
	s.apply()
	d.run("UPDATE t SET n = 2")
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestAnOldProgramIsRefused before anything is touched.
func TestAnOldProgramIsRefused(t *testing.T) {
	d := newWhole(t, accounts)
	folder := t.TempDir()
	require.NoError(t,
		os.WriteFile(filepath.Join(folder, "pg_dump"), []byte("#!/bin/sh\necho 'pg_dump (PostgreSQL) 13.4'\n"), 0o700))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	d.checkpoint(true).refused("the PATH of the worker is 13; install the client programs of PostgreSQL")
	t.Setenv("PATH", folder+"/none")
	d.checkpoint(true).refused("needs the program pg_dump")
}

// TestAProgramThatIsKilledIsRunAgain, and what it has left half-way is put back by nobody.
func TestAProgramThatIsKilledIsRunAgain(t *testing.T) {
	d := newWhole(t, accounts)
	before := d.wholeDump()
	// killOnce lets a program end by a signal the next time that it is given this option, with what it
	// has written cut.
	folder := t.TempDir()
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	killOnce := func(program, option string) {
		theirs, err := exec.LookPath(program)
		require.NoError(t, err)
		stand := filepath.Join(folder, program)
		require.NoError(t, os.WriteFile(stand, []byte(fmt.Sprintf(`#!/bin/sh
for a; do case "$a" in %[2]s*) rm %[3]q; %[1]q "$@" && [ -f "${a#%[2]s}" ] && truncate -s 100 "${a#%[2]s}"; kill -9 $$;; esac; done
exec %[1]q "$@"
`, theirs, option, stand)), 0o700))
	}
	dumps := func(s *step) []string {
		found, err := filepath.Glob(filepath.Join(d.state, "journal", "tokens", s.entry.Token, "dump-*"))
		require.NoError(t, err)
		return found
	}

	never := d.checkpoint(true)
	killOnce("pg_dump", "--file=")
	_, err := never.action.Apply(t.Context(), never.entry, never.with, "")
	require.ErrorContains(t, err, "the checkpoint cannot be taken: pg_dump: signal: killed")
	require.Empty(t, dumps(never))
	u, err := never.action.Undo(t.Context(), never.entry, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Nothing, u.Outcome)

	s := d.checkpoint(true)
	killOnce("pg_dump", "--file=")
	_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
	require.ErrorContains(t, err, "signal: killed")
	s.apply()
	require.Len(t, dumps(s), 1)
	d.migrate()
	left := d.wholeDump()
	killOnce("pg_restore", "--exit-on-error")
	_, err = s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.ErrorContains(t, err, "nothing was touched: pg_restore: signal: killed")
	require.Equal(t, left, d.wholeDump())
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
	require.Equal(t, "0",
		d.value("SELECT count(*) FROM pg_database WHERE starts_with(datname, 'unwind_new_"+s.entry.Token+"')"))
}

// TestACheckpointThatHasNoRoomIsRefused before it is taken.
func TestACheckpointThatHasNoRoomIsRefused(t *testing.T) {
	testrun.NeedRoot(t, "full disks")
	t.Parallel()
	d := newWhole(t, accounts)
	if err := unix.Mount("unwind-test", d.state, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		testrun.Skipf(t, "full disks are not tested: a small filesystem cannot be mounted: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(d.state, unix.MNT_DETACH)) })
	d.openCheckpoints(postgres.Database{})
	d.checkpoint(true).refused("make room, or move the worker's state to a larger disk")
}

// A checkpoint is in the folder of the worker that took it. Without it, or with that of before the
// step, nobody takes the step for one that has done nothing: the undo is parked, and says where the
// checkpoint is. With the folder it is undone.
func TestACheckpointWhoseFolderIsAnother(t *testing.T) {
	t.Parallel()
	d := newWhole(t, accounts)
	before, saved := d.wholeDump(), filepath.Join(t.TempDir(), "saved")
	mine := d.state
	require.NoError(t, os.CopyFS(saved, os.DirFS(mine)))
	var err error
	d.place, err = d.world.Journal(t.Context()) // the task is compiled
	require.NoError(t, err)
	s := d.checkpoint(true)
	s.apply()
	d.migrate()
	migrated := d.wholeDump()
	undo := func(state string) (activities.Undone, error) {
		d.openIn(postgres.Database{}, state)
		for _, a := range d.world.Actions {
			if a.Spec().Name == s.entry.Action {
				s.action = a
			}
		}
		return s.action.Undo(t.Context(), s.entry, activities.Decision{})
	}
	for state, want := range map[string]activities.ErrorType{t.TempDir(): activities.WrongPlace,
		saved: activities.DamagedRecord} {
		_, err := undo(state)
		require.Equal(t, want, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, filepath.Join(state, "journal"))
		require.Equal(t, migrated, d.wholeDump())
	}
	u, err := undo(mine)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Equal(t, before, d.wholeDump())
}
