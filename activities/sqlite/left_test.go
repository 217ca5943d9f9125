package sqlite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestDriftAfterASchemaStepIsShownByRows also where a database has counters of AUTOINCREMENT, whose
// table is SQLite's own.
func TestDriftAfterASchemaStepIsShownByRows(t *testing.T) {
	const step = "ALTER TABLE person ADD COLUMN mail TEXT DEFAULT 'none'; INSERT INTO team (name) VALUES ('violet'); " +
		"DELETE FROM tag WHERE word = 'sql'"
	for _, mode := range []string{"", "PRAGMA journal_mode = WAL;"} {
		for _, c := range []struct {
			others string
			shows  []string
		}{
			{"UPDATE log SET line = 'theirs' WHERE rowid = 1",
				[]string{"~ table log (3 rows -> 3 rows)", "~ log rowid=1 line='first' -> 'theirs'"}},
			{"DELETE FROM log WHERE line IS NULL; INSERT INTO log VALUES ('new')", []string{"~ log rowid=3 line=NULL -> 'new'"}},
			{"INSERT INTO log VALUES ('new')", []string{"+ log rowid=4 line='new'"}},
			{"DELETE FROM log WHERE rowid = 2", []string{"- log rowid=2 line='first'"}},
			{"UPDATE person SET mail = 'theirs' WHERE id = 'bob'",
				[]string{"~ person rowid=2 id='bob' team=1 name='Bob' age=12", "mail='theirs'", "+ log rowid=4 line='Bob -> Bob'"}},
			{"DELETE FROM person WHERE id = 'cy'", []string{"- person rowid=3"}},
			{"INSERT INTO team (name) VALUES ('theirs')",
				[]string{"+ team id=5 name='theirs'", "~ table sqlite_sequence (1 row -> 1 row)"}},
			{"UPDATE tag SET n = 7 WHERE word = 'go' AND person = 'bob'", []string{"~ tag word='go' person='bob' n=7"}},
			{"INSERT INTO tag VALUES ('zoe', 'new', 1); DELETE FROM tag WHERE person = 'ann'",
				[]string{"+ tag word='new' person='zoe' n=1", "- tag word='Go' person='ann'"}},
			{"ALTER TABLE log ADD COLUMN x", []string{"~ table log: defined in another way", "~ table log (3 rows -> 3 rows)"}},
			{"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) INSERT INTO log SELECT i FROM n",
				[]string{"+ log rowid=4 line='1'", "... and 33 more rows of log"}},
		} {
			b := newBench(t, mode+people)
			before := b.dump()
			e := b.mustExec(step)
			shell(t, b.path, c.others)
			after := b.dump()
			undone := b.undo(e, "")
			require.Equal(t, activities.Drifted, undone.Outcome, c.others)
			for _, line := range c.shows {
				require.Contains(t, undone.Drift.Diff, line, c.others)
			}
			require.Equal(t, after, b.dump(), c.others)
			undone = b.undo(e, undone.Drift.Digest)
			require.Equal(t, activities.Restored, undone.Outcome, "%s: %+v", c.others, undone)
			require.Equal(t, strings.TrimSpace(before), strings.TrimSpace(b.dump()), c.others)
		}
	}
}
