package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// restoreCase restores one of two checkpoints, and then the other one.
var restoreCase = actiontest.Case{
	Name: "restore", Action: "postgres.restore", Open: openWhole, Manifest: dumpIn, Anew: true,
	Start:     startRestore,
	With:      func(dir string) any { return map[string]any{"database": "main", "checkpoint": nameIn(dir, "one")} },
	Next:      func(dir string) any { return map[string]any{"database": "main", "checkpoint": nameIn(dir, "two")} },
	Drift:     changeAccount,
	Meanwhile: changeAccount,
	EitherWay: true, Sample: 1,
}

// restoreDumpCase is the same from dumps, which take longer to make.
var restoreDumpCase = func() actiontest.Case {
	c := restoreCase
	c.Name, c.Start, c.Brief = "restore of a dump", startRestoreOfDumps, true
	return c
}()

func startRestore(t testing.TB, dir string)        { startRestoreAs(t, dir, "copy") }
func startRestoreOfDumps(t testing.TB, dir string) { startRestoreAs(t, dir, "dump") }

func startRestoreAs(t testing.TB, dir, as string) {
	startWhole(t, dir)
	dsn, err := dsnIn(dir)
	require.NoError(t, err)
	takeIn(t, dir, "one", as)
	postgrestest.Exec(t, dsn, "UPDATE account SET owner = 'two ' || id", "ALTER TABLE entry ADD COLUMN note text")
	takeIn(t, dir, "two", as)
	postgrestest.Exec(t, dsn, "DELETE FROM account WHERE id > 7", "ALTER TABLE account DROP COLUMN owner")
}

// startWhole is startAccounts as the role that may put checkpoints back.
func startWhole(t testing.TB, dir string) {
	server := postgrestest.Need(t)
	dsn := keeperDSN(t, server, server.Database(t, accounts))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dsn"), []byte(dsn), 0o600))
	t.Cleanup(func() { dropOf(t, server, filepath.Join(dir, "state")) })
}

// dropOf drops the databases that steps have left beside their own.
func dropOf(t testing.TB, server *postgrestest.Server, state string) {
	tokens, err := filepath.Glob(filepath.Join(state, "journal", "tokens", "*"))
	require.NoError(t, err)
	conn, err := pgx.Connect(context.Background(), server.Admin("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for _, token := range tokens {
		rows, err := conn.Query(context.Background(), "SELECT datname::text FROM pg_database WHERE datname ~ $1",
			"^unwind_[a-z]+_"+filepath.Base(token))
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, name := range names {
			server.Exec(t, server.Admin("postgres"), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		}
	}
}

func openWhole(dir string) (activities.World, error) {
	database := postgres.Database{DSN: func() (string, error) { return dsnIn(dir) }}
	return postgres.New(postgres.Config{State: filepath.Join(dir, "state"),
		Databases: map[string]postgres.Database{"main": database}})
}

func tokenIn(dir, name string) string { return activities.NewToken(dir, name, 0) }

func nameIn(dir, name string) string { return "cp-" + tokenIn(dir, name) }

// takeIn takes a checkpoint.
func takeIn(t testing.TB, dir, name, as string) {
	w, err := openWhole(dir)
	require.NoError(t, err)
	place, err := w.Journal(context.Background())
	require.NoError(t, err)
	with, err := json.Marshal(map[string]any{"database": "main", "as": as})
	require.NoError(t, err)
	e := activities.Entry{Token: tokenIn(dir, name), Action: "postgres.checkpoint", Params: with,
		Place: activities.Place{Journal: place}}
	for _, a := range w.Actions {
		if a.Spec().Name == e.Action {
			r, err := a.Apply(context.Background(), e, activities.Step{ID: name, With: with}, "")
			require.NoError(t, err)
			require.Equal(t, nameIn(dir, name), r.Outputs["checkpoint"])
		}
	}
}

// restore is a step that restores what another step has taken.
func (d *database) restore(from *step) *step {
	d.t.Helper()
	return d.step("postgres.restore", map[string]any{"database": "main", "checkpoint": "cp-" + from.entry.Token})
}

// checkpointAs is a checkpoint that is kept in this way.
func (d *database) checkpointAs(as string) *step {
	d.t.Helper()
	return d.step("postgres.checkpoint", map[string]any{"database": "main", "as": as})
}

// newRestorable is newWhole that clears up what steps leave on the server.
func newRestorable(t testing.TB, statements ...string) *database {
	t.Helper()
	d := newWhole(t, statements...)
	t.Cleanup(func() { dropOf(t, d.server, d.state) })
	return d
}

// exactDump is all that is in the database, with where its sequences stand.
func (d *database) exactDump() string {
	d.t.Helper()
	return d.wholeDump() + d.value("SELECT string_agg(concat_ws(' ', schemaname, sequencename, last_value), ',' ORDER BY sequencename)"+
		" FROM pg_sequences WHERE schemaname <> 'unwind'")
}

// TestADatabaseIsRestoredBothWays goes from one checkpoint to another and back, and takes all of it
// back.
func TestADatabaseIsRestoredBothWays(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"dump", "copy"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			restoreBothWays(t, as)
		})
	}
}

func restoreBothWays(t *testing.T, as string) {
	d := newRestorable(t, accounts, "CREATE VIEW rich AS SELECT owner FROM account WHERE balance > 50",
		"CREATE SEQUENCE counter", "SELECT setval('counter', 41)")
	var states []string
	keep := func() { states = append(states, d.exactDump()) }
	one := d.checkpointAs(as)
	one.apply()
	keep()
	d.migrate()
	d.run("SELECT nextval('counter')", "DROP VIEW rich", "CREATE TABLE made (a serial, b text DEFAULT 'b')",
		"INSERT INTO made DEFAULT VALUES")
	two := d.checkpointAs(as)
	two.apply()
	keep()
	d.run("TRUNCATE made RESTART IDENTITY", "DROP SEQUENCE counter", "DROP TABLE account")
	keep()

	var steps []*step
	for _, each := range []struct {
		from *step
		want string
	}{{one, states[0]}, {two, states[1]}, {one, states[0]}, {one, states[0]}} {
		s := d.restore(each.from)
		c := s.plan()
		require.Equal(t, activities.High, c.Risk)
		require.Equal(t, len(steps) == 3, c.Unchanged, c.Summary)
		result := s.apply()
		require.Equal(t, each.want, d.exactDump())
		require.Equal(t, fmt.Sprint(result), fmt.Sprint(s.apply()), "twice is once")
		require.Equal(t, len(steps) == 3, result.Outputs["changed"] == 0)
		steps = append(steps, s)
	}
	for i, want := range []string{states[0], states[1], states[0], states[2]} {
		s := steps[len(steps)-1-i]
		u := s.undo(activities.Restored)
		require.Equal(t, want, d.exactDump())
		require.Equal(t, u, s.undo(activities.Restored), "twice is once")
	}
	require.Positive(t, steps[0].bytes())
	for _, s := range append(steps, one, two) {
		require.NoError(t, s.action.Release(t.Context(), s.entry))
	}
	require.Equal(t, states[2], d.exactDump())
	for _, s := range append(steps, one, two) {
		require.Equal(t, "0", d.value("SELECT count(*) FROM pg_database WHERE datname LIKE '%"+s.entry.Token+"%'"))
	}
}

// TestASequenceThatHasMovedIsPutBack though nothing else has changed.
func TestASequenceThatHasMovedIsPutBack(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, "CREATE SEQUENCE counter", "SELECT setval('counter', 41)")
	before := d.exactDump()
	cp := d.checkpointAs("copy")
	cp.apply()
	d.run("SELECT nextval('counter')")
	s := d.restore(cp)
	require.Contains(t, s.plan().Diff, "~ position of sequence public.counter")
	s.apply()
	require.Equal(t, before, d.exactDump())
}

// TestWhatOthersDidInARestoredDatabaseIsDrift, and is kept when a person has it overwritten.
func TestWhatOthersDidInARestoredDatabaseIsDrift(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	cp := d.checkpointAs("copy")
	cp.apply()
	d.migrate()
	before := d.wholeDump()
	s := d.restore(cp)
	s.apply()
	d.run("UPDATE account SET owner = 'theirs' WHERE id = 7")
	changed := d.wholeDump()
	shown := s.undo(activities.Drifted).Drift
	require.Contains(t, shown.Diff, "~ table data public.account: 10 rows then, 10 now, with other values")
	require.Equal(t, shown, s.undo(activities.Drifted).Drift)
	require.Equal(t, changed, d.wholeDump())
	d.run("CREATE TABLE more (a int)")
	again := s.decide(activities.Decision{Done: true, Force: shown.Digest}, activities.Drifted).Drift
	require.Contains(t, again.Diff, "+ table public.more")

	kept := &database{t: t, server: d.server, name: "unwind_kept_" + s.entry.Token}
	kept.asAdmin("INSERT INTO migrations VALUES (2)")
	third := s.decide(activities.Decision{Done: true, Force: again.Digest}, activities.Drifted).Drift
	require.Contains(t, third.Diff, kept.name+", which has what was there before, has changed")
	kept.asAdmin("DELETE FROM migrations WHERE n = 2")
	newest := d.wholeDump()
	s.decide(activities.Decision{Done: true, Force: again.Digest}, activities.Restored)
	require.Equal(t, before, d.wholeDump())
	theirs := &database{t: t, server: d.server, name: "unwind_undone_" + s.entry.Token}
	require.Equal(t, newest, theirs.wholeDump())
	require.NoError(t, s.action.Release(t.Context(), s.entry))
}

// TestACheckpointThatIsNotTheOneIsRefused before anything is touched.
func TestACheckpointThatIsNotTheOneIsRefused(t *testing.T) {
	t.Parallel()
	d, other := newRestorable(t, accounts), newWhole(t, accounts)
	cp, damaged, undone, released := d.checkpointAs("copy"), d.checkpointAs("dump"), d.checkpointAs("copy"),
		d.checkpointAs("copy")
	for _, s := range []*step{cp, damaged, undone, released} {
		s.apply()
	}
	undone.undo(activities.Restored)
	require.NoError(t, released.action.Release(t.Context(), released.entry))
	d.migrate()
	left := d.wholeDump()
	d.restore(undone).refused("was undone, or its record was released")
	d.restore(released).refused("was undone, or its record was released")
	d.restore(d.checkpointAs("copy")).refused("was never taken here")
	for _, name := range []string{"", "cp-", "cp-../../x", "cp-zz", cp.entry.Token} {
		d.step("postgres.restore", map[string]any{"database": "main", "checkpoint": name}).refused("is no name of a checkpoint")
	}

	found, err := filepath.Glob(filepath.Join(d.state, "journal", "tokens", damaged.entry.Token, "dump-*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	content, err := os.ReadFile(found[0])
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(found[0], content, 0o600))
	s := d.restore(damaged)
	_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	s.decide(activities.Decision{}, activities.Nothing)
	require.Equal(t, left, d.wholeDump())

	other.state = d.state
	other.openCheckpoints(postgres.Database{})
	there := other.wholeDump()
	other.restore(cp).refused("a checkpoint goes back into its own database only")
	require.Equal(t, there, other.wholeDump())

	d.asAdmin("ALTER DATABASE " + d.name + " IS_TEMPLATE true")
	d.restore(cp).refused("it is a template of the server")
	d.asAdmin("ALTER DATABASE " + d.name + " IS_TEMPLATE false")
	d.openCheckpoints(postgres.Database{Deny: []string{"public.entry"}})
	d.restore(cp).refused("limits the tables")
	d.dsn = d.server.DSN(d.name)
	d.openCheckpoints(postgres.Database{})
	d.restore(cp).refused("must have CREATEDB")
	require.Equal(t, left, d.wholeDump())
}

// awaitFact waits until a plan has a fact about sessions: the server may still be ending one.
func (s *step) awaitFact(fact string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return slices.Contains(s.plan().Facts, fact) }, 10*time.Second, 10*time.Millisecond)
}

// TestARestoreEndsSessions which its plan has counted. One that may not be ended stops it before
// anything is touched.
func TestARestoreEndsSessions(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	before := d.wholeDump()
	cp := d.checkpointAs("copy")
	cp.apply()
	d.migrate()
	left := d.wholeDump()
	s := d.restore(cp)
	s.awaitFact("it ends all sessions of the database, 0 sessions as of now; others may begin at once")
	admin, err := pgx.Connect(t.Context(), d.server.Admin(d.name))
	require.NoError(t, err)
	busy, err := pgx.Connect(t.Context(), d.server.DSN(d.name))
	require.NoError(t, err)
	s.awaitFact("it ends all sessions of the database, 2 sessions as of now; others may begin at once")
	_, err = busy.Exec(t.Context(), "BEGIN; DELETE FROM account") // and never goes on
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
	require.ErrorContains(t, err, "of postgres uses it")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	require.Equal(t, left, d.wholeDump())
	require.NoError(t, admin.Close(t.Context()))
	s.apply()
	require.Equal(t, before, d.wholeDump())
	require.Error(t, busy.Ping(t.Context()))
}

// TestRecordsOfRowsGoWithTheDatabase, there and back: they are of what has happened since.
func TestRecordsOfRowsGoWithTheDatabase(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	first := d.exec("UPDATE account SET balance = 1 WHERE id < 4")
	before := d.wholeDump()
	first.apply()
	cp := d.checkpointAs("copy")
	cp.apply()
	second := d.exec("UPDATE account SET balance = 2 WHERE id < 4", "DELETE FROM entry WHERE n = 3")
	second.apply()
	back := d.restore(cp)
	back.apply()
	third := d.exec("INSERT INTO account (owner) VALUES ('new')")
	third.apply()
	require.Equal(t, "3", d.value("SELECT count(*) FROM unwind.record"))
	third.undo(activities.Restored)
	back.undo(activities.Restored)
	require.Equal(t, "3", d.value("SELECT count(*) FROM unwind.record"))
	_, err := third.action.Apply(t.Context(), third.entry, third.with, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), "%v", err)
	second.undo(activities.Restored)
	first.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestADatabaseThatIsNoLongerKept is told, and nobody takes the step for one that did nothing.
func TestADatabaseThatIsNoLongerKept(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	cp := d.checkpointAs("copy")
	cp.apply()
	d.migrate()
	s := d.restore(cp)
	s.apply()
	left := d.wholeDump()
	d.server.Exec(t, d.server.Admin("postgres"), "DROP DATABASE unwind_kept_"+s.entry.Token)
	for _, decision := range []activities.Decision{{}, {Done: true}} {
		_, err := s.action.Undo(t.Context(), s.entry, decision)
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	}
	seen, err := s.action.Observe(t.Context(), s.entry)
	require.NoError(t, err)
	require.Equal(t, activities.Unseen, seen.State)
	require.Equal(t, left, d.wholeDump())
}

// TestACopyEndsSessions and takes in what they have done before.
func TestACopyEndsSessions(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	s := d.checkpointAs("copy")
	busy, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	c := s.plan()
	require.Equal(t, activities.Medium, c.Risk)
	s.awaitFact("it ends all sessions of the database, 1 session as of now; others may begin at once, and wait until the " +
		"copy is made")
	require.NoError(t, busy.Ping(t.Context()), "a plan ends none")
	_, err = busy.Exec(t.Context(), "BEGIN; DELETE FROM entry")
	require.NoError(t, err)
	before := d.exactDump()
	s.apply()
	require.Error(t, busy.Ping(t.Context()))
	require.Equal(t, before, d.exactDump(), "what was not committed is not there")
	copied := "unwind_checkpoint_" + s.entry.Token
	_, err = pgx.Connect(t.Context(), d.server.Admin(copied))
	require.ErrorContains(t, err, "is not currently accepting connections")
	require.Greater(t, s.bytes(), int64(1_000_000), "a copy counts")
}

// TestASessionThatKeepsACopyFromBeingMade is named, and nothing is left of the copy.
func TestASessionThatKeepsACopyFromBeingMade(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	admin, err := pgx.Connect(t.Context(), d.server.Admin(d.name))
	require.NoError(t, err)
	s := d.checkpointAs("copy")
	_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
	require.ErrorContains(t, err, "of postgres uses it")
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_database WHERE datname LIKE '%"+s.entry.Token+"%'"))
	require.NoError(t, admin.Ping(t.Context()))
	require.NoError(t, admin.Close(t.Context()))
	s.apply()
}

// TestACopyIsACheckpointLikeAnother for the undo of its step, with what belongs to the database and
// is not in it.
func TestACopyIsACheckpointLikeAnother(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	d.asAdmin("ALTER DATABASE "+d.name+" SET work_mem = '5MB'", "COMMENT ON DATABASE "+d.name+" IS 'it''s of\nthe shop'",
		"GRANT CREATE ON DATABASE "+d.name+" TO other", "ALTER DATABASE "+d.name+" CONNECTION LIMIT 30")
	const properties = `SELECT concat_ws(' ', datdba::regrole, datacl, encoding, datcollate, datconnlimit,
		shobj_description(oid, 'pg_database'), (SELECT string_agg(s::text, ' ') FROM (SELECT setrole, setconfig
		FROM pg_db_role_setting WHERE setdatabase = d.oid ORDER BY 1) s))
		FROM pg_database d WHERE datname = current_database()`
	before, about := d.exactDump(), d.value(properties)
	s := d.step("postgres.checkpoint", map[string]any{"database": "main", "as": "copy", "exclusive": true})
	s.apply()
	d.migrate()
	d.asAdmin("ALTER DATABASE " + d.name + " SET work_mem = '7MB'")
	back := d.restore(s)
	back.apply()
	require.Equal(t, before, d.exactDump())
	require.Equal(t, about, d.value(properties))
	back.undo(activities.Restored)
	s.undo(activities.Restored)
	require.Equal(t, before, d.exactDump())
	require.Equal(t, about, d.value(properties))
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_database WHERE datname = 'unwind_checkpoint_"+s.entry.Token+"'"))
	d.restore(s).refused("was undone, or its record was released")
}

// TestACopyThatIsNotAsItWasMade is not put back.
func TestACopyThatIsNotAsItWasMade(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	cp := d.checkpointAs("copy")
	cp.apply()
	d.migrate()
	left := d.exactDump()
	copied := &database{t: t, server: d.server, name: "unwind_checkpoint_" + cp.entry.Token}
	d.server.Exec(t, d.server.Admin("postgres"), "ALTER DATABASE "+copied.name+" ALLOW_CONNECTIONS true")
	copied.asAdmin("UPDATE account SET balance = 7 WHERE id = 7")
	s := d.restore(cp)
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err, "~ table data public.account")
	s.decide(activities.Decision{}, activities.Nothing)
	d.server.Exec(t, d.server.Admin("postgres"), "DROP DATABASE "+copied.name)
	s = d.restore(cp)
	_, err = s.action.Plan(t.Context(), s.entry, s.with)
	require.ErrorContains(t, err, "the server has no database "+copied.name)
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	require.Equal(t, left, d.exactDump())
	d.step("postgres.checkpoint", map[string]any{"database": "main", "as": "else"}).refused("must be dump or copy")
	d.step("postgres.checkpoint", map[string]any{"database": "main", "read_later": true}).refused("it goes with as: copy")
}

// TestACheckpointIsVerified whether it was read before or not, and nobody can connect to a copy
// afterwards.
func TestACheckpointIsVerified(t *testing.T) {
	t.Parallel()
	d := newRestorable(t, accounts)
	later := d.step("postgres.checkpoint", map[string]any{"database": "main", "as": "copy", "read_later": true})
	dumped := d.checkpointAs("dump")
	var digests []any
	for _, cp := range []*step{later, dumped} {
		cp.apply()
		o, err := cp.action.Observe(t.Context(), cp.entry)
		require.NoError(t, err)
		require.Equal(t, activities.AsLeft, o.State)
		verify := d.step("postgres.verify", map[string]any{"database": "main", "checkpoint": "cp-" + cp.entry.Token})
		for range 2 {
			result := verify.apply()
			require.EqualValues(t, 40, result.Outputs["rows"])
			digests = append(digests, result.Outputs["digest"])
		}
	}
	require.Len(t, slices.Compact(digests), 1)
	copied := &database{t: t, server: d.server, name: "unwind_checkpoint_" + later.entry.Token}
	require.Equal(t, "false", d.value("SELECT datallowconn FROM pg_database WHERE datname = '"+copied.name+"'"))
	d.server.Exec(t, d.server.Admin("postgres"), "ALTER DATABASE "+copied.name+" ALLOW_CONNECTIONS true")
	copied.asAdmin("UPDATE account SET balance = 7 WHERE id = 7")
	for _, says := range []string{"~ table data public.account", "the server has no database " + copied.name} {
		verify := d.step("postgres.verify", map[string]any{"database": "main", "checkpoint": "cp-" + later.entry.Token})
		_, err := verify.action.Apply(t.Context(), verify.entry, verify.with, "")
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, says)
		d.server.Exec(t, d.server.Admin("postgres"), "DROP DATABASE IF EXISTS "+copied.name)
	}
}
