package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestVirtualTablesAreWrittenAndUndoneExactly writes tables whose rows a module keeps, some of them
// in memory until the commit.
func TestVirtualTablesAreWrittenAndUndoneExactly(t *testing.T) {
	const tables = `
CREATE VIRTUAL TABLE words USING fts5 (line);
INSERT INTO words VALUES ('one two'), ('three'), ('four');
CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT);
CREATE VIRTUAL TABLE note_words USING fts5 (body, content = 'note', content_rowid = 'id');
CREATE TRIGGER note_add AFTER INSERT ON note BEGIN INSERT INTO note_words (rowid, body) VALUES (new.id, new.body); END;
CREATE TRIGGER note_cut AFTER DELETE ON note BEGIN INSERT INTO note_words (note_words, rowid, body)
VALUES ('delete', old.id, old.body); END;
INSERT INTO note (body) VALUES ('kept'), ('gone');
CREATE VIRTUAL TABLE area USING rtree (id, low, high);
INSERT INTO area VALUES (1, 0, 1), (2, 5, 9);
`
	for _, mode := range []string{"", "PRAGMA journal_mode = WAL;"} {
		for sql, query := range map[string]string{
			"INSERT INTO words VALUES ('two new'); UPDATE words SET line = 'three more' WHERE words MATCH 'three'; DELETE " +
				"FROM words WHERE line = 'four'": "SELECT count(*) FROM words WHERE words MATCH 'new OR more'",
			"INSERT INTO note (body) VALUES ('new'), ('more'); DELETE FROM note WHERE body " +
				"= 'gone'": "SELECT count(*) FROM note_words WHERE note_words MATCH 'new OR more'",
			"INSERT INTO area VALUES (3, 2, 3), (4, 2, 3); DELETE FROM area " +
				"WHERE id = 1": "SELECT count(*) FROM area_rowid WHERE rowid > 2",
			"INSERT INTO words (words) VALUES ('optimize'); INSERT INTO words SELECT 'new' UNION ALL SELECT 'more'; ALTER " +
				"TABLE note ADD COLUMN at TEXT DEFAULT 'now'": "SELECT count(*) FROM words WHERE words MATCH 'new OR more'",
		} {
			b := newBench(t, mode+tables)
			before := b.dump()
			e, s := b.step("sqlite.exec", params{"sql": sql})
			change, err := b.local.Plan(t.Context(), e, s)
			require.NoError(t, err, sql)
			require.Equal(t, activities.Snapshot, change.Strategy, sql)
			require.Equal(t, before, b.dump(), sql)
			_, err = b.local.Apply(t.Context(), e, s, change.Digest)
			require.NoError(t, err, sql)
			q, read := b.step("sqlite.query", params{"sql": query})
			result, err := b.local.Apply(t.Context(), q, read, "")
			require.NoError(t, err, sql)
			require.EqualValues(t, 2, result.Outputs["value"], sql)
			undone := b.undo(e, "")
			require.Equal(t, activities.Restored, undone.Outcome, "%s: %+v", sql, undone)
			require.Equal(t, before, b.dump(), sql)
			require.Equal(t, "ok\n", shell(t, b.path, "PRAGMA integrity_check"), sql)
		}
	}
}
