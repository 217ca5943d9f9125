package sqlite_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
)

// keep takes a checkpoint.
func (b *bench) keep() (activities.Entry, string) {
	b.t.Helper()
	e, s := b.step("sqlite.checkpoint", params{})
	result, err := b.local.Apply(b.t.Context(), e, s, "")
	require.NoError(b.t, err)
	name, _ := result.Outputs["checkpoint"].(string)
	return e, name
}

func (b *bench) restore(checkpoint string) (activities.Entry, error) {
	b.t.Helper()
	e, s := b.step("sqlite.restore", params{"checkpoint": checkpoint})
	_, err := b.local.Apply(b.t.Context(), e, s, "")
	return e, err
}

func (b *bench) mustRestore(checkpoint string) activities.Entry {
	b.t.Helper()
	e, err := b.restore(checkpoint)
	require.NoError(b.t, err)
	return e
}

// rows is the database without the marks of steps.
func (b *bench) rows() string { return dumpOf(b.t, b.path) }

func (b *bench) inode() os.FileInfo {
	b.t.Helper()
	info, err := os.Stat(b.path)
	require.NoError(b.t, err)
	return info
}

// kept is the file of a checkpoint.
func (b *bench) kept(checkpoint string) string {
	return filepath.Join(b.local.Config.State, "checkpoints", checkpoint)
}

// session is a connection of SQLite's own program that stays open.
type session struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
}

func (b *bench) connect() session {
	b.t.Helper()
	c := exec.Command("sqlite3", "-batch", b.path)
	in, err := c.StdinPipe()
	require.NoError(b.t, err)
	out, err := c.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, c.Start())
	b.t.Cleanup(func() {
		require.NoError(b.t, in.Close())
		require.NoError(b.t, c.Wait())
	})
	return session{b.t, in, bufio.NewReader(out)}
}

// ask runs statements that return one line.
func (s session) ask(sql string) string {
	s.t.Helper()
	_, err := fmt.Fprintln(s.in, sql)
	require.NoError(s.t, err)
	line, err := s.out.ReadString('\n')
	require.NoError(s.t, err)
	return strings.TrimSpace(line)
}

const wreck = "DROP TABLE tag; ALTER TABLE person ADD COLUMN mail TEXT DEFAULT 'none'; CREATE INDEX logged ON log (line); " +
	"UPDATE person SET age = age + 1; PRAGMA user_version = 7; DELETE FROM team WHERE id = 2; CREATE VIRTUAL TABLE f " +
	"USING fts5(x); INSERT INTO f VALUES ('a')"

// TestADatabaseGoesBackAndForward three times, while others have it open.
func TestADatabaseGoesBackAndForward(t *testing.T) {
	for _, mode := range []string{"DELETE", "WAL"} {
		b := newBench(t, "PRAGMA journal_mode = "+mode+";"+people)
		_, first := b.keep()
		before, file := b.rows(), b.inode()
		other := b.connect()
		require.Equal(t, "3", other.ask("SELECT count(*) FROM tag;"))
		shell(t, b.path, wreck)
		broken := b.rows()
		_, second := b.keep()
		var done []activities.Entry
		for range 3 {
			done = append(done, b.mustRestore(first))
			require.Equal(t, before, b.rows(), mode)
			require.Equal(t, "3", other.ask("SELECT count(*) FROM tag;"), mode)
			done = append(done, b.mustRestore(second))
			require.Equal(t, broken, b.rows(), mode)
			require.Equal(t, "7", other.ask("PRAGMA user_version;"), mode)
		}
		for i, e := range slices.Backward(done) {
			undone := b.undo(e, "")
			require.Equal(t, activities.Restored, undone.Outcome, "%+v", undone)
			require.Equal(t, []string{before, broken}[i%2^1], b.rows(), "%s: undo of restore %d", mode, i)
		}
		require.Equal(t, "1", other.ask("INSERT INTO log VALUES ('theirs'); SELECT changes();"))
		require.True(t, os.SameFile(file, b.inode()))
		require.Equal(t, strings.ToLower(mode)+"\n", shell(t, b.path, "PRAGMA journal_mode;"))
		require.Equal(t, "ok\n", shell(t, b.path, "PRAGMA integrity_check;"))
		left, err := filepath.Glob(filepath.Join(b.local.Config.State, "journal", "tokens", "*", "*-*"))
		require.NoError(t, err)
		for _, path := range left {
			require.Contains(t, path, "record-spare")
		}
	}
}

// TestAReaderKeepsWhatItSees until it ends its transaction.
func TestAReaderKeepsWhatItSees(t *testing.T) {
	b := newBench(t, "PRAGMA journal_mode = WAL;"+people)
	_, first := b.keep()
	shell(t, b.path, "DELETE FROM log")
	other := b.connect()
	require.Equal(t, "0", other.ask("BEGIN; SELECT count(*) FROM log;"))
	e := b.mustRestore(first)
	require.Equal(t, "0", other.ask("SELECT count(*) FROM log;"))
	require.Equal(t, "3", other.ask("COMMIT; SELECT count(*) FROM log;"))
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "0", other.ask("SELECT count(*) FROM log;"))
}

// TestWhatOthersHaveDoneSinceARestoreIsDrift by rows, and a force overwrites it.
func TestWhatOthersHaveDoneSinceARestoreIsDrift(t *testing.T) {
	for _, mode := range []string{"DELETE", "WAL"} {
		b := newBench(t, "PRAGMA journal_mode = "+mode+";"+people)
		_, first := b.keep()
		shell(t, b.path, wreck)
		broken := b.rows()
		e := b.mustRestore(first)
		shell(t, b.path, "UPDATE log SET line = 'theirs' WHERE rowid = 1")
		theirs := b.rows()
		undone := b.undo(e, "")
		require.Equal(t, activities.Drifted, undone.Outcome)
		require.Contains(t, undone.Drift.Diff, "~ log rowid=1 line='theirs'")
		require.Equal(t, theirs, b.rows())
		shell(t, b.path, "INSERT INTO log VALUES ('more')")
		require.Equal(t, activities.Drifted, b.undo(e, undone.Drift.Digest).Outcome, "only what was shown")
		undone = b.undo(e, "")
		require.Equal(t, activities.Restored, b.undo(e, undone.Drift.Digest).Outcome)
		require.Equal(t, broken, b.rows())
	}
}

func TestARestoreThatIsRefusedTouchesNothing(t *testing.T) {
	b := newBench(t, people)
	taken, first := b.keep()
	other := filepath.Join(filepath.Dir(b.path), "other.db")
	shell(t, other, people)
	e, s := b.step("sqlite.checkpoint", params{"database": other})
	result, err := b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	dropped, gone := b.keep()
	require.Equal(t, activities.Restored, b.undo(dropped, "").Outcome)
	released, lapsed := b.keep()
	require.NoError(t, b.local.Release(t.Context(), released))
	_, damaged := b.keep()
	raw, err := os.ReadFile(b.kept(damaged))
	require.NoError(t, err)
	raw[len(raw)-1] ^= 1
	require.NoError(t, os.WriteFile(b.kept(damaged), raw, 0o600))
	_, lost := b.keep()
	require.NoError(t, os.Remove(b.kept(lost)))
	acted := b.mustExec("DELETE FROM log")
	before := b.rows()
	otherName, _ := result.Outputs["checkpoint"].(string)
	for checkpoint, c := range map[string]struct {
		says string
		kind activities.ErrorType
	}{
		"":                  {"is no name of a checkpoint", activities.Refused},
		"cp-../../x":        {"is no name of a checkpoint", activities.Refused},
		"cp-" + acted.Token: {"there is no cp-", activities.Refused},
		otherName:           {"is of " + other, activities.Refused},
		gone:                {"was undone", activities.Refused},
		lapsed:              {"its record was released", activities.Refused},
		damaged:             {"its content is not what the step has written", activities.DamagedRecord},
		lost:                {"it is gone", activities.DamagedRecord},
	} {
		for _, action := range []string{"sqlite.restore", "sqlite.verify", "sqlite.compare"} {
			e, s := b.step(action, params{"checkpoint": checkpoint})
			_, err := b.local.Apply(t.Context(), e, s, "")
			require.ErrorContains(t, err, c.says, "%s of %q", action, checkpoint)
			require.Equal(t, c.kind, activities.TypeOf(err), "%s of %q: %v", action, checkpoint, err)
			require.Equal(t, activities.Nothing, b.undo(e, "").Outcome)
			require.Equal(t, before, b.rows())
		}
	}
	locking := b.connect()
	require.Equal(t, "held", locking.ask("BEGIN IMMEDIATE; SELECT 'held';"))
	e, err = b.restore(first)
	require.ErrorContains(t, err, "is locked by another program; nothing was touched")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again")
	require.Equal(t, "over", locking.ask("COMMIT; SELECT 'over';"))
	require.Equal(t, activities.Nothing, b.undo(e, "").Outcome)
	require.Equal(t, before, b.rows())
	b.mustRestore(first)
	require.FileExists(t, b.kept("cp-"+taken.Token))
}

// TestAnEmptyFileBecomesTheDatabase also where its pages have another size than those of the
// checkpoint: in WAL mode that is refused.
func TestAnEmptyFileBecomesTheDatabase(t *testing.T) {
	b := newBench(t, "PRAGMA page_size = 8192;"+people)
	_, first := b.keep()
	before := b.rows()
	require.NoError(t, os.Truncate(b.path, 0))
	e := b.mustRestore(first)
	require.Equal(t, before, b.rows())
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "0\n", shell(t, b.path, "SELECT count(*) FROM sqlite_schema;"))

	require.NoError(t, os.Truncate(b.path, 0))
	shell(t, b.path, "PRAGMA page_size = 1024; CREATE TABLE small (a); INSERT INTO small VALUES (1)")
	e = b.mustRestore(first)
	require.Equal(t, before, b.rows())
	require.Equal(t, "8192\nok\n", shell(t, b.path, "PRAGMA page_size; PRAGMA integrity_check;"))
	require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
	require.Equal(t, "1\nok\n", shell(t, b.path, "SELECT a FROM small; PRAGMA integrity_check;"))

	require.NoError(t, os.Truncate(b.path, 0))
	shell(t, b.path, "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; CREATE TABLE small (a)")
	_, err := b.restore(first)
	require.ErrorContains(t, err, "has another page size by now, 1024 in place of 8192")
	require.Equal(t, "0\n", shell(t, b.path, "SELECT count(*) FROM small;"))
}

// TestAMarkGoesWithTheChangeOfItsStep whichever way a restore leads, and stays away once the step
// is over.
func TestAMarkGoesWithTheChangeOfItsStep(t *testing.T) {
	b := newBench(t, people)
	start := b.rows()
	earlier := b.mustExec("DELETE FROM log WHERE line IS NULL")
	kept, first := b.keep()
	later := b.mustExec("UPDATE team SET name = 'later' WHERE id = 1")
	back := b.mustRestore(first)
	require.Equal(t, "2\n", shell(t, b.path, "SELECT count(*) FROM _unwind_steps;"), "of the earlier step, and of the restore")
	require.Equal(t, activities.Restored, b.undo(back, "").Outcome)
	require.Equal(t, activities.Restored, b.undo(later, "").Outcome)
	require.Equal(t, activities.Restored, b.undo(kept, "").Outcome)
	require.Equal(t, activities.Restored, b.undo(earlier, "").Outcome)
	require.Equal(t, start, b.rows())
	require.NotContains(t, shell(t, b.path, ".schema"), "_unwind_steps")

	over := b.mustExec("DELETE FROM log WHERE line IS NULL")
	_, second := b.keep()
	require.NoError(t, b.local.Release(t.Context(), over))
	back = b.mustRestore(second)
	require.NoError(t, b.local.Release(t.Context(), back))
	require.NotContains(t, shell(t, b.path, ".schema"), "_unwind_steps")
}

// TestACheckpointOutlastsTheUndoOfItsStep where somebody else keeps it.
func TestACheckpointOutlastsTheUndoOfItsStep(t *testing.T) {
	b := newBench(t, people)
	before := b.rows()
	e, first := b.keep()
	j, err := journal.Open(filepath.Join(b.local.Config.State, "journal"))
	require.NoError(t, err)
	token, err := j.Token(e.Token)
	require.NoError(t, err)
	keeper := activities.Owner{Workflow: "environment-shop"}
	_, err = token.Hold(keeper)
	require.NoError(t, err)
	for range 2 {
		undone := b.undo(e, "")
		require.Equal(t, activities.Nothing, undone.Outcome)
		require.Contains(t, undone.Observed, "is that of environment-shop by now, and stays")
	}
	shell(t, b.path, "DELETE FROM log")
	b.mustRestore(first)
	require.Equal(t, before, b.rows())
	require.NoError(t, token.EndHold(keeper))
	require.NoError(t, b.local.Release(t.Context(), e))
	require.NoFileExists(t, b.kept(first))
}

func TestACheckpointIsVerifiedAndCompared(t *testing.T) {
	b := newBench(t, people)
	_, first := b.keep()
	look := func(action string, with params) activities.Result {
		e, s := b.step(action, with)
		change, err := b.local.Plan(t.Context(), e, s)
		require.NoError(t, err)
		require.True(t, change.Unchanged)
		result, err := b.local.Apply(t.Context(), e, s, change.Digest)
		require.NoError(t, err)
		return result
	}
	info, err := os.Stat(b.kept(first))
	require.NoError(t, err)
	require.Equal(t, info.Size(), look("sqlite.verify", params{"checkpoint": first}).Outputs["bytes"])
	same := look("sqlite.compare", params{"checkpoint": first}).Outputs
	require.Equal(t, 0, same["changed"])
	require.Empty(t, same["diff"])
	shell(t, b.path, wreck+"; CREATE TABLE fresh (a); DROP TRIGGER person_log")
	now := look("sqlite.compare", params{"checkpoint": first})
	for _, line := range []string{
		"+ index logged", "+ table f", "+ table fresh (0 rows)", "- table tag (3 rows)", "- trigger person_log",
		"~ table person: defined in another way", "~ table person (5 rows -> 5 rows)", "~ PRAGMA user_version: 0 -> 7",
		"~ table team (3 rows -> 2 rows)",
	} {
		require.Contains(t, strings.Split(fmt.Sprint(now.Outputs["diff"]), "\n"), line)
	}
	_, second := b.keep()
	require.Equal(t, now.Outputs, look("sqlite.compare", params{"checkpoint": first, "with": second}).Outputs)
	e, s := b.step("sqlite.restore", params{"checkpoint": first})
	change, err := b.local.Plan(t.Context(), e, s)
	require.NoError(t, err)
	require.Equal(t, activities.High, change.Risk)
	require.Contains(t, change.Diff, "+ table tag (3 rows)")
}

// TestADatabaseThatWasDamagedBeforeIsNoCheckpoint to rely on, although it is as it was kept.
func TestADatabaseThatWasDamagedBeforeIsNoCheckpoint(t *testing.T) {
	b := newBench(t, people)
	shell(t, b.path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'person_name';")
	_, first := b.keep()
	e, s := b.step("sqlite.verify", params{"checkpoint": first})
	_, err := b.local.Apply(t.Context(), e, s, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
}

// TestWhatARestoreReplacesIsOnTheDiskBefore looks at the database whenever undo data is synced.
func TestWhatARestoreReplacesIsOnTheDiskBefore(t *testing.T) {
	b := newBench(t, "PRAGMA journal_mode = WAL;"+people)
	_, first := b.keep()
	shell(t, b.path, wreck)
	before := b.rows()
	var synced []string
	stop := sqlite.OnSync(func(path string) {
		name, _, _ := strings.Cut(filepath.Base(path), "-")
		if strings.Contains(filepath.Base(path), "-") {
			synced = append(synced, name)
		}
		require.Equal(t, before, b.rows())
	})
	defer stop()
	b.mustRestore(first)
	require.Equal(t, []string{"checkpoint", "rows"}, synced)
}

// TestAQueryCheckSeesWhatARestoreIsToLeave before anything is touched.
func TestAQueryCheckSeesWhatARestoreIsToLeave(t *testing.T) {
	b := newBench(t, people)
	_, first := b.keep()
	shell(t, b.path, "DELETE FROM log")
	before := b.rows()
	for want, fails := range map[string]bool{"3": false, "0": true} {
		e, s := b.step("sqlite.restore", params{"checkpoint": first})
		s.Checks = []activities.Check{{When: activities.Staged,
			Query: &activities.QueryCheck{SQL: "SELECT count(*) FROM log", Expect: json.RawMessage(want)}}}
		_, err := b.local.Apply(t.Context(), e, s, "")
		require.Equal(t, fails, activities.TypeOf(err) == activities.CheckFailed, "%v", err)
		if fails {
			require.Equal(t, activities.Nothing, b.undo(e, "").Outcome)
		} else {
			require.Equal(t, activities.Restored, b.undo(e, "").Outcome)
		}
		require.Equal(t, before, b.rows())
	}
}
