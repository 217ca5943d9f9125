package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// markHarms are what is done to the row in the database that says that a step has acted; :A and :B
// are the tokens of two steps.
var markHarms = map[string]string{
	"deleted":           "DELETE FROM _unwind_steps WHERE token = ':A'",
	"its table dropped": "DROP TABLE _unwind_steps",
	"attempt cut":       "UPDATE _unwind_steps SET attempt = substr(attempt, 1, 9) WHERE token = ':A'",
	"digest cut":        "UPDATE _unwind_steps SET digest = substr(digest, 1, 9) WHERE token = ':A'",
	"both empty":        "UPDATE _unwind_steps SET attempt = '', digest = '' WHERE token = ':A'",
	"another's": "UPDATE _unwind_steps SET (attempt, digest) = (SELECT attempt, digest FROM _unwind_steps " +
		"WHERE token = ':B') WHERE token = ':A'",
	"attempt another's": "UPDATE _unwind_steps SET attempt = (SELECT attempt FROM _unwind_steps WHERE token = ':B') " +
		"WHERE token = ':A'",
	"digest another's": "UPDATE _unwind_steps SET digest = (SELECT digest FROM _unwind_steps WHERE token = ':B') " +
		"WHERE token = ':A'",
	"leading to another's": "UPDATE _unwind_steps SET (attempt, digest) = " +
		"(SELECT 'x/../../:B/rows-' || attempt, digest FROM _unwind_steps WHERE token = ':B') WHERE token = ':A'",
}

// Two steps have acted, each on rows or on the schema, or one has restored a checkpoint. The mark of the first is harmed, when the
// worker has noted that it has acted, and when the worker died before. Whatever the history knows,
// neither a forward nor an undo does anything wrong: the undo is right, or says that the record is
// damaged; then nothing is touched or released, and once the mark is put back, the undo is right.
func TestHarmToTheMark(t *testing.T) {
	exec := func(sql string) func(*bench) (activities.Entry, activities.Step) {
		return func(b *bench) (activities.Entry, activities.Step) { return b.step("sqlite.exec", params{"sql": sql}) }
	}
	for _, kind := range []struct {
		name string
		step func(*bench) (activities.Entry, activities.Step)
	}{
		{"rows", exec("UPDATE person SET age = age + 1; DELETE FROM log WHERE line = 'first'")},
		{"schema", exec("ALTER TABLE team ADD COLUMN size INT; UPDATE person SET age = age + 1")},
		{"restore", func(b *bench) (activities.Entry, activities.Step) {
			_, name := b.keep()
			shell(b.t, b.path, "ALTER TABLE team ADD COLUMN size INT; UPDATE person SET age = age + 1")
			return b.step("sqlite.restore", params{"checkpoint": name})
		}},
	} {
		for name, harm := range markHarms {
			for _, confirmed := range []bool{true, false} {
				for _, decision := range []activities.Decision{{}, {Done: true}} {
					t.Run(fmt.Sprintf("%s, %s, confirmed %t, done %t", kind.name, name, confirmed, decision.Done), func(t *testing.T) {
						t.Parallel()
						testrun.Sampled(t)
						testHarmToTheMark(t, kind.step, harm, confirmed, decision)
					})
				}
			}
		}
	}
}

func testHarmToTheMark(t *testing.T, step func(*bench) (activities.Entry, activities.Step), harm string,
	confirmed bool, decision activities.Decision) {
	b := newBench(t, people)
	tags := shell(t, b.path, ".dump tag")
	other := b.mustExec("UPDATE tag SET n = n + 1")
	e, s := step(b)
	between := dumpOf(t, b.path)
	result, err := b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	if !confirmed {
		require.NoError(t, os.Remove(b.document(e, "applied")))
	}
	left := dumpOf(t, b.path)
	marks := shell(t, b.path, ".dump _unwind_steps")
	shell(t, b.path, strings.NewReplacer(":A", e.Token, ":B", other.Token).Replace(harm))

	again, err := b.local.Apply(t.Context(), e, s, "")
	if err == nil {
		require.Equal(t, result, again)
	} else {
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
	}
	require.Equal(t, left, dumpOf(t, b.path))

	u, err := b.local.Undo(t.Context(), e, decision)
	if err != nil {
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		require.Equal(t, left, dumpOf(t, b.path))
		_, err = b.local.Apply(t.Context(), e, s, "")
		require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
		require.Error(t, b.local.Release(t.Context(), e))
		require.Equal(t, left, dumpOf(t, b.path))
		shell(t, b.path, "DROP TABLE IF EXISTS _unwind_steps;"+marks)
		u, err = b.local.Undo(t.Context(), e, decision)
	}
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	require.Equal(t, between, dumpOf(t, b.path))
	b.undo(other, "")
	require.Equal(t, tags, shell(t, b.path, ".dump tag"))
}

// A mark that is put back after the undo, or comes to a step that has not committed, changes
// nothing.
func TestAMarkThatShouldNotBeThere(t *testing.T) {
	b := newBench(t, people)
	before := dumpOf(t, b.path)
	e, s := b.step("sqlite.exec", params{"sql": "UPDATE person SET age = age + 1"})
	_, err := b.local.Apply(t.Context(), e, s, "")
	require.NoError(t, err)
	mark := shell(t, b.path, ".dump _unwind_steps")
	saved := t.TempDir()
	require.NoError(t, os.CopyFS(saved, os.DirFS(b.document(e, ""))))
	undone := b.undo(e, "")
	shell(t, b.path, mark)
	require.Equal(t, undone, b.undo(e, ""))
	require.Equal(t, before, dumpOf(t, b.path))
	_, err = b.local.Apply(t.Context(), e, s, "")
	require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
	// The worker died before it had noted the outcome.
	acted, err := os.ReadFile(b.document(e, "acted"))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(b.document(e, "")))
	require.NoError(t, os.CopyFS(b.document(e, ""), os.DirFS(saved)))
	require.NoError(t, os.WriteFile(b.document(e, "acted"), acted, 0o600))
	require.Equal(t, undone.Outcome, b.undo(e, "").Outcome)
	require.Equal(t, before, dumpOf(t, b.path))

	never, _ := b.step("sqlite.exec", params{"sql": "UPDATE person SET age = age + 1"})
	shell(t, b.path, strings.ReplaceAll(mark, e.Token, never.Token))
	require.Equal(t, activities.Nothing, b.undo(never, "").Outcome)
	require.Equal(t, before, dumpOf(t, b.path))
}

// document is the file of a document of a step.
func (b *bench) document(e activities.Entry, name string) string {
	return filepath.Join(b.local.Config.State, "journal", "tokens", e.Token, name)
}
