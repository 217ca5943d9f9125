package sqlite_test

import (
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
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/testrun"
)

// bench is a database, and the world over it.
type bench struct {
	t     testing.TB
	path  string
	local sqlite.Local
	steps int
}

func newBench(t testing.TB, script string) *bench {
	t.Helper()
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	dir := t.TempDir()
	b := &bench{t: t, path: filepath.Join(dir, "app.db"), local: sqlite.Local{Config: sqlite.Config{
		State: filepath.Join(dir, "state"), Roots: []string{dir}, Busy: 100 * time.Millisecond,
	}}}
	shell(t, b.path, script)
	return b
}

// step is a step with these parameters; the database is added.
func (b *bench) step(action string, with params) (activities.Entry, activities.Step) {
	b.t.Helper()
	b.steps++
	if with["database"] == nil {
		with["database"] = b.path
	}
	raw, err := json.Marshal(with)
	require.NoError(b.t, err)
	params, err := activities.EntryParams(raw, []string{"database"}, nil)
	require.NoError(b.t, err)
	return activities.Entry{
		Version: 1, Action: action, Token: activities.NewToken(b.t.Name(), action, b.steps), Params: params,
	}, activities.Step{With: raw}
}

func (b *bench) exec(sql string, args ...any) (activities.Entry, error) {
	b.t.Helper()
	with := params{"sql": sql}
	if len(args) > 0 {
		with["params"] = args
	}
	e, s := b.step("sqlite.exec", with)
	_, err := b.local.Apply(b.t.Context(), e, s, "")
	return e, err
}

func (b *bench) mustExec(sql string, args ...any) activities.Entry {
	b.t.Helper()
	e, err := b.exec(sql, args...)
	require.NoError(b.t, err)
	return e
}

func (b *bench) undo(e activities.Entry, force activities.Digest) activities.Undone {
	b.t.Helper()
	undone, err := b.local.Undo(b.t.Context(), e, activities.Decision{Force: force})
	require.NoError(b.t, err)
	return undone
}

// dump is everything, the marks of steps too.
func (b *bench) dump() string {
	b.t.Helper()
	return shell(b.t, b.path, ".dump --preserve-rowids\nPRAGMA user_version;")
}

func TestBadInputIsRefusedAndTouchesNothing(t *testing.T) {
	b := newBench(t, people)
	text := filepath.Join(filepath.Dir(b.path), "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("no database at all\n", 100)), 0o600))
	outside := filepath.Join(t.TempDir(), "other.db")
	shell(t, outside, "CREATE TABLE t (x)")
	require.NoError(t, os.Symlink(outside, filepath.Join(filepath.Dir(b.path), "link.db")))
	before := b.dump()
	for _, c := range []struct {
		with params
		says string
		kind activities.ErrorType
	}{
		{params{"sql": "UPDATE nobody SET x = 1"}, "no such table: nobody", activities.Refused},
		{params{"sql": "UPDATE team SET name = 'x' WHERE id = 1; SELEC 1"}, "syntax error", activities.Refused},
		{params{"sql": "UPDATE person SET name = 'x'", "database": text}, "not an SQLite database", activities.Refused},
		{params{"sql": "SELECT 1", "database": filepath.Dir(b.path) + "/none.db"}, "no such file", activities.Refused},
		{params{"sql": "SELECT 1", "database": "app.db"}, "absolute path", activities.Refused},
		{params{"sql": "SELECT 1", "database": outside}, "sqlite.roots", activities.Refused},
		{params{"sql": "SELECT 1", "database": filepath.Dir(b.path) + "/link.db"}, "sqlite.roots", activities.Refused},
		{params{"sql": "SELECT 1", "database": filepath.Dir(b.path)}, "not a regular file", activities.Refused},
		{params{}, "give sql or statements", activities.Refused},
		{params{"sql": "SELECT 1", "sqll": 1}, "unknown field", activities.Refused},
		{params{"sql": "UPDATE team SET name = ?"}, "1 and none is given", activities.Refused},
		{params{"sql": "UPDATE team SET name = ?", "params": []any{1, 2}}, "1 and 2 are given", activities.Refused},
		{params{"sql": "UPDATE team SET name = :a", "params": params{"b": 1}}, `":a" is not given`, activities.Refused},
		{params{"sql": "UPDATE team SET name = 'a' WHERE id = 1; DELETE FROM log", "params": []any{}},
			"belong to one statement", activities.Refused},
		{params{"sql": "ATTACH '" + outside + "' AS o"}, "ATTACH", activities.Refused},
		{params{"sql": "VACUUM"}, "VACUUM", activities.Refused},
		{params{"sql": "VACUUM INTO '" + outside + ".copy'"}, "VACUUM", activities.Refused},
		{params{"sql": "BEGIN"}, "one transaction", activities.Refused},
		{params{"sql": "UPDATE team SET name = 'x' WHERE id = 1; COMMIT"}, "one transaction", activities.Refused},
		{params{"sql": "PRAGMA journal_mode = DELETE"}, "PRAGMA journal_mode is not allowed", activities.Refused},
		{params{"sql": "PRAGMA writable_schema = 1"}, "not allowed", activities.Refused},
		{params{"sql": "CREATE TEMP TABLE x (y)"}, "temporary", activities.Refused},
		{params{"sql": "SELECT load_extension('x')"}, "not authorized", activities.Refused},
		{params{"sql": "CREATE TABLE _unwind_steps (x)"}, "not for statements", activities.Refused},
		{params{"sql": "INSERT INTO team VALUES (1, 'again')"}, "UNIQUE constraint failed", activities.ActionDenied},
		{params{"sql": "UPDATE person SET team = 77 WHERE id = 'ann'"}, "FOREIGN KEY constraint failed",
			activities.ActionDenied},
		{params{"statements": []params{{"sql": "DELETE FROM log", "changes": 2}}}, "changes 3 rows, and changes says 2",
			activities.ActionDenied},
	} {
		e, s := b.step("sqlite.exec", c.with)
		for _, op := range []string{"Plan", "Apply"} {
			var err error
			if op == "Plan" {
				_, err = b.local.Plan(t.Context(), e, s)
			} else {
				_, err = b.local.Apply(t.Context(), e, s, "")
			}
			require.Error(t, err, "%s of %v", op, c.with)
			require.Equal(t, c.kind, activities.TypeOf(err), "%s of %v: %v", op, c.with, err)
			require.ErrorContains(t, err, c.says)
		}
		require.Equal(t, activities.Nothing, b.undo(e, "").Outcome, "%v", c.with)
		require.Equal(t, before, b.dump(), "%v", c.with)
	}
	require.NoFileExists(t, outside+".copy")
}

// TestALockedDatabaseIsWaitedForAndNamed holds a lock in another process.
func TestALockedDatabaseIsWaitedForAndNamed(t *testing.T) {
	b := newBench(t, people)
	other := exec.Command("sqlite3", "-batch", b.path)
	in, err := other.StdinPipe()
	require.NoError(t, err)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	_, err = in.Write([]byte("BEGIN IMMEDIATE; SELECT 'held';\n"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 4))
	require.NoError(t, err)
	e, s := b.step("sqlite.exec", params{"sql": "DELETE FROM log"})
	_, err = b.local.Apply(t.Context(), e, s, "")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
	require.ErrorContains(t, err, "locked by another program")
	require.NoError(t, in.Close())
	require.NoError(t, other.Wait())
	_, err = b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
}

// TestDrift is what others do between a step and its undo: it is shown, nothing is changed, and a
// force overwrites it.
func TestDrift(t *testing.T) {
	const step = "UPDATE person SET name = 'Anna' WHERE id = 'ann'; DELETE FROM team WHERE id = 3; INSERT INTO team " +
		"VALUES (9, 'new'); DELETE FROM log WHERE line IS NULL"
	for _, c := range []struct {
		name, others string
		shown        string
		forced       activities.Outcome
		// restores says that the forced undo brings everything back.
		restores bool
	}{
		{"a row is changed", "UPDATE team SET name = 'newer' WHERE id = 9", "~ team id=9 name='new' -> 'newer'",
			activities.Restored, true},
		{"a row is gone", "DELETE FROM team WHERE id = 9", "", activities.Restored, true},
		{"a row is there again", "INSERT INTO team VALUES (3, 'green again')", "+ team id=3 name='green again'",
			activities.Restored, true},
		{"a value is taken", "INSERT INTO team VALUES (4, 'green')", "- team id=4 name='green'", activities.Restored, true},
		{"a row refers to one that would go", "INSERT INTO person (id, team) VALUES ('zoe', 9)",
			"! person rowid=6 refers to a row of team", activities.Residue, false},
		{"a table is altered", "ALTER TABLE team ADD COLUMN motto TEXT", "table team was altered", activities.Drifted, false},
	} {
		b := newBench(t, people)
		before := b.dump()
		e := b.mustExec(step)
		shell(t, b.path, c.others)
		after := b.dump()
		undone := b.undo(e, "")
		if c.shown == "" {
			require.Equal(t, activities.Restored, undone.Outcome, c.name)
			require.Equal(t, before, b.dump(), c.name)
			continue
		}
		require.Equal(t, activities.Drifted, undone.Outcome, c.name)
		require.Contains(t, undone.Drift.Diff, c.shown, c.name)
		require.Equal(t, after, b.dump(), c.name)
		forced := b.undo(e, undone.Drift.Digest)
		require.Equal(t, c.forced, forced.Outcome, "%s: %+v", c.name, forced)
		if c.restores {
			require.Equal(t, before, b.dump(), c.name)
		}
	}
}

func TestRowsOfOthersStayAsTheyAre(t *testing.T) {
	b := newBench(t, people)
	e := b.mustExec("UPDATE person SET age = age + 1")
	shell(t, b.path, "INSERT INTO person (id, age) VALUES ('dot', 5); INSERT INTO team (name) VALUES ('theirs')")
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "31|12|45|||5|theirs\n",
		strings.ReplaceAll(shell(t, b.path, "SELECT age FROM person; SELECT name FROM team WHERE id > 3"), "\n",
			"|")[:len("31|12|45|||5|theirs")]+"\n")
}

// TestACopyInPlaceOfTheDatabase puts a copy of the file, of before or after the step, in its place.
func TestACopyInPlaceOfTheDatabase(t *testing.T) {
	for _, of := range []string{"before", "after"} {
		b := newBench(t, people)
		before := b.dump()
		copyTo := func() {
			shell(t, b.path, ".backup "+b.path+".copy")
		}
		if of == "before" {
			copyTo()
		}
		e := b.mustExec("DELETE FROM log")
		if of == "after" {
			copyTo()
		}
		require.NoError(t, os.Rename(b.path+".copy", b.path))
		undone := b.undo(e, "")
		require.Equal(t, activities.Drifted, undone.Outcome)
		require.Contains(t, undone.Drift.Diff, "a copy was put in its place")
		require.Equal(t, activities.Restored, b.undo(e, undone.Drift.Digest).Outcome, of)
		require.Equal(t, before, b.dump(), of)
	}
}

// TestADatabaseThatWasRestoredInPlace is the same file with the content of before a step: its mark
// is gone with the step, and only the journal knows of it. It is compared with what was there
// before, not taken for a step that has done nothing.
func TestADatabaseThatWasRestoredInPlace(t *testing.T) {
	for since, want := range map[string]activities.Outcome{
		"SELECT 1": activities.Restored, "UPDATE person SET name = 'theirs' WHERE id = 'ann'": activities.Drifted,
	} {
		b := newBench(t, people)
		shell(t, b.path, ".backup "+b.path+".copy")
		e := b.mustExec("UPDATE person SET name = 'Anna' WHERE id = 'ann'; DELETE FROM log")
		shell(t, b.path, ".restore "+b.path+".copy")
		shell(t, b.path, since)
		left := b.dump()
		for _, d := range []activities.Decision{{}, {Done: true}} {
			undone, err := b.local.Undo(t.Context(), e, d)
			require.NoError(t, err)
			require.Equal(t, want, undone.Outcome, "%s: %+v", since, undone)
			require.Equal(t, left, b.dump())
		}
	}
}

func TestADatabaseThatIsGone(t *testing.T) {
	b := newBench(t, people)
	e := b.mustExec("DELETE FROM log")
	require.NoError(t, os.Remove(b.path))
	undone := b.undo(e, "")
	require.Equal(t, activities.Drifted, undone.Outcome)
	require.Equal(t, activities.Residue, b.undo(e, undone.Drift.Digest).Outcome)
}

func TestThePlanShowsRows(t *testing.T) {
	b := newBench(t, people)
	before := b.dump()
	e, s := b.step("sqlite.exec",
		params{"sql": "UPDATE person SET name = 'Anna' WHERE id = 'ann'; DELETE FROM team WHERE id = 2; INSERT INTO log " +
			"VALUES (x'ff')"})
	change, err := b.local.Plan(t.Context(), e, s)
	require.NoError(t, err)
	require.Equal(t, b.path+": log: 2 rows added; person: 3 rows removed, 1 changed; team: 1 row removed", change.Summary)
	require.Equal(t,
		[]string{"log: 2 rows added, of 3 rows", "person: 3 rows removed, 1 changed, of 5 rows",
			"team: 1 row removed, of 3 rows"}, change.Facts)
	require.Equal(t,
		[]activities.Count{{Of: "log", Added: 2, Before: 3}, {Of: "person", Removed: 3, Changed: 1, Before: 5},
			{Of: "team", Removed: 1, Before: 3}}, change.Counts)
	require.Equal(t, `+ log rowid=4 line='Ann -> Anna'
+ log rowid=5 line=x'ff'
~ person rowid=1 name='Ann' -> 'Anna'
- person rowid=3 id='cy' team=2 name='Cy' age=45 photo=x'' height=2
- person rowid=4 id=NULL team=2 name='Nobody' age=NULL photo=x'' height=NULL
- person rowid=5 id=NULL team=2 name='Nobody' age=NULL photo=x'' height=NULL
- team id=2 name='blue'
`, change.Diff)
	require.Equal(t, activities.Transaction, change.Strategy)

	e, s = b.step("sqlite.exec",
		params{"sql": "DROP TABLE tag; CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('a')"})
	change, err = b.local.Plan(t.Context(), e, s)
	require.NoError(t, err)
	require.Equal(t, activities.Snapshot, change.Strategy)
	require.Contains(t, change.Facts[0], "it changes the schema (drop table)")
	require.Contains(t, change.Facts[1], "the whole file is copied first")
	require.Contains(t, change.Diff, "- table tag (3 rows)")
	require.Equal(t, before, b.dump())
}

// TestAnApprovalCoversWhatTheClockDoesNotChange plans and applies at different times.
func TestAnApprovalCoversWhatTheClockDoesNotChange(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (at TEXT DEFAULT CURRENT_TIMESTAMP, n INT); INSERT INTO t VALUES (0, 1)")
	e, s := b.step("sqlite.exec",
		params{"sql": "INSERT INTO t (n) VALUES (abs(random())); UPDATE t SET n = 2 WHERE n = 1"})
	change, err := b.local.Plan(t.Context(), e, s)
	require.NoError(t, err)
	shell(t, b.path, "UPDATE t SET at = 1")
	_, err = b.local.Apply(t.Context(), e, s, change.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v", err)
	shell(t, b.path, "UPDATE t SET at = '0'")
	_, err = b.local.Apply(t.Context(), e, s, change.Digest)
	require.NoError(t, err)
}

func TestQuery(t *testing.T) {
	b := newBench(t, people)
	before := b.dump()
	ask := func(with params) (activities.Result, error) {
		e, s := b.step("sqlite.query", with)
		return b.local.Apply(t.Context(), e, s, "")
	}
	got, err := ask(params{"sql": "SELECT id, age, photo, height, ? AS big FROM person WHERE id > :a ORDER BY id",
		"params": []any{json.Number("9007199254740993"), "ann"}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"value": "bob", "count": 2, "rows": []map[string]any{
		{"id": "bob", "age": int64(12), "photo": nil, "height": 1.5, "big": int64(9007199254740993)},
		{"id": "cy", "age": int64(45), "photo": map[string]any{"base64": ""}, "height": 2.0, "big": int64(9007199254740993)},
	}}, got.Outputs)
	for sql, says := range map[string]string{
		"DELETE FROM log":                           "only reads",
		"DROP TABLE log":                            "only reads",
		"PRAGMA user_version = 3":                   "not allowed",
		"SELECT 1; SELECT 2":                        "one statement",
		"INSERT INTO log VALUES (1) RETURNING line": "only reads",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n": "more than 100 rows",
	} {
		_, err := ask(params{"sql": sql})
		require.Equal(t, activities.Refused, activities.TypeOf(err), sql)
		require.ErrorContains(t, err, says)
	}
	require.Equal(t, before, b.dump())
}

// TestTheLibraryDoesNotCorruptAWriteAheadLog: before 3.51.3 a log that was reset beside a
// concurrent writer could corrupt a database.
func TestTheLibraryDoesNotCorruptAWriteAheadLog(t *testing.T) {
	b := newBench(t, people)
	e, s := b.step("sqlite.query", params{"sql": "SELECT sqlite_version()"})
	result, err := b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	var is [3]int
	_, err = fmt.Sscanf(fmt.Sprint(result.Outputs["value"]), "%d.%d.%d", &is[0], &is[1], &is[2])
	require.NoError(t, err)
	require.GreaterOrEqual(t, slices.Compare(is[:], []int{3, 51, 3}), 0, "the library is SQLite %v", is)
}

func TestReturnedRowsAreOutputs(t *testing.T) {
	b := newBench(t, people)
	e, s := b.step("sqlite.exec", params{"sql": "INSERT INTO team (name) VALUES ('x'), ('y') RETURNING id, name"})
	result, err := b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	require.Equal(t, "[map[id:4 name:x] map[id:5 name:y]]", fmt.Sprint(result.Outputs["rows"]))
	require.Equal(t, "2", fmt.Sprint(result.Outputs["changes"]))
}

func TestAReleaseRemovesTheMark(t *testing.T) {
	b := newBench(t, people)
	e := b.mustExec("DELETE FROM log")
	require.Contains(t, b.dump(), "_unwind_steps")
	require.NoError(t, b.local.Release(t.Context(), e))
	require.NotContains(t, b.dump(), "_unwind_steps")
}

// TestUndoDataIsOnTheDiskBeforeTheCommit looks at the database whenever undo data is synced.
func TestUndoDataIsOnTheDiskBeforeTheCommit(t *testing.T) {
	for sql, want := range map[string]string{
		"DELETE FROM log": "rows- tokens/", "DROP TABLE log": "checkpoint- tokens/ rows- tokens/",
	} {
		b := newBench(t, people)
		before := b.dump()
		var synced []string
		restore := sqlite.OnSync(func(path string) {
			name, _, isFile := strings.Cut(filepath.Base(path), "-")
			if isFile {
				name += "-"
			} else {
				name = filepath.Base(filepath.Dir(path)) + "/"
			}
			synced = append(synced, name)
			require.Equal(t, before, b.dump())
		})
		b.mustExec(sql)
		restore()
		require.Equal(t, want, strings.Join(synced, " "), sql)
	}
}

// TestAnUndoDoesNotMoveTheCountersOfAutoincrement: rows that come back have numbers that a counter
// may never have given.
func TestAnUndoDoesNotMoveTheCountersOfAutoincrement(t *testing.T) {
	t.Parallel()
	b := newBench(t, `CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO t (a) VALUES (1), (2);
		CREATE TABLE n (k INTEGER PRIMARY KEY AUTOINCREMENT); UPDATE t SET k = 100 WHERE k = 2`)
	before := b.dump()
	e, err := b.exec("DELETE FROM t WHERE k = 100; INSERT INTO n DEFAULT VALUES")
	require.NoError(t, err)
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, before, b.dump())
}
