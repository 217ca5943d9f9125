package sqlite_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/testrun"
)

const (
	largeRows = 1_000_000 // of a little more than a kilobyte each
	// memoryLimit is the most that the process of a call may take, in MiB. As Linux counts it, that is
	// at least what this process takes.
	memoryLimit = 256
)

// TestADatabaseOfAGigabyte takes bounded memory, whether a step is undone by rows or by a copy of
// the file, and a time that depends on what the step changes: one row of it costs what one row of a
// small database does.
func TestADatabaseOfAGigabyte(t *testing.T) {
	testrun.Extra(t)
	small, large := newLarge(t, 1000), newLarge(t, largeRows)
	before := digestOf(t, large.path)

	one := "UPDATE item SET note = 'changed' WHERE id = 700"
	want := small.timed("one row of a small database", one)
	got := large.timed("one row of 1 GB", one)
	require.Less(t, got, 5*want+time.Second)

	large.timed("20,000 rows of 1 GB", "UPDATE item SET note = 'changed', n = n + 1 WHERE id % 50 = 0")
	large.timed("a column of 1 GB", "ALTER TABLE item ADD COLUMN extra TEXT")
	require.Equal(t, before, digestOf(t, large.path))
}

// large is a database, with a world whose calls run in processes of their own, as a worker's do.
type large struct {
	*bench

	world activities.World
}

//nolint:dupword // SQL
func newLarge(t *testing.T, rows int) large {
	t.Helper()
	b := newBench(t,
		fmt.Sprintf(`PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
			CREATE TABLE item (id INTEGER PRIMARY KEY, n INTEGER, note TEXT, body BLOB);
		WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < %d) INSERT INTO item
		SELECT i, i, 'note ' || i, zeroblob(1050) FROM g;`, rows))
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync()) // or else the first step would do it
	require.NoError(t, f.Close())
	w, err := sqlite.New(sqlite.Config{State: filepath.Join(t.TempDir(), "state"), Roots: []string{filepath.Dir(b.path)}})
	require.NoError(t, err)
	return large{b, w}
}

// timed runs a step and undoes it, and says what that takes. It returns how long both take.
func (l large) timed(what, sql string) time.Duration {
	l.t.Helper()
	e, s := l.step("sqlite.exec", params{"sql": sql})
	var err error
	e.Place.Journal, err = l.world.Journal(l.t.Context())
	require.NoError(l.t, err)
	began := time.Now()
	_, err = l.world.Actions[0].Apply(l.t.Context(), e, s, "")
	require.NoError(l.t, err)
	forward := time.Since(began)
	u, err := l.world.Actions[0].Undo(l.t.Context(), e, activities.Decision{Done: true})
	require.NoError(l.t, err)
	require.Equal(l.t, activities.Restored, u.Outcome, "%+v", u)
	took := time.Since(began)
	require.NoError(l.t, l.world.Actions[0].Release(context.WithoutCancel(l.t.Context()), e))
	var used syscall.Rusage
	require.NoError(l.t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used))
	l.t.Logf("%s: the step %v, its undo %v; no process has taken more than %d MiB", what, forward, took-forward,
		used.Maxrss>>10)
	require.Less(l.t, used.Maxrss>>10, int64(memoryLimit), what)
	return took
}

// digestOf is a digest of all rows, as SQLite's own program writes them.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "rows")
	shell(t, path,
		fmt.Sprintf(
			".output %s\nSELECT rowid, n, note, quote(substr(body, 1, 4)), length(body) FROM item;\nSELECT sql FROM "+
				"sqlite_schema;", out))
	f, err := os.Open(out)
	require.NoError(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sum.Sum(nil))
}
