package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// Where rows are not enough to undo a step, it has high risk unless nothing that was there goes or
// changes, whatever its statements are called.
func TestAnInsertHasHighRiskIfRowsGoOrChange(t *testing.T) {
	for name, c := range map[string]struct {
		schema, sql string
		want        activities.Risk
	}{
		"only adds": {"CREATE TABLE t (id INTEGER PRIMARY KEY)",
			"CREATE TABLE u (a); INSERT INTO t VALUES (2); INSERT INTO u VALUES (1)", activities.Medium},
		"full text": {"CREATE VIRTUAL TABLE t USING fts5 (line); INSERT INTO t VALUES ('a b')",
			"INSERT INTO t VALUES ('a c')", activities.Medium},
		"a column": {"CREATE TABLE t (id INTEGER PRIMARY KEY)", "ALTER TABLE t ADD COLUMN a", activities.Medium},
		"trigger deletes": {
			"CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM gone; END",
			"CREATE TABLE u (a); INSERT INTO t VALUES (2)", activities.High},
		"trigger updates": {
			"CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE gone SET n = 2; END",
			"CREATE TABLE u (a); INSERT INTO t VALUES (2)", activities.High},
		"trigger on words": {
			"CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE w USING fts5 (line); INSERT INTO w VALUES ('a'); " +
				"CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM w WHERE 1; END", "INSERT INTO t VALUES (2)", activities.High},
		"conflict replaces": {"CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT REPLACE, n); INSERT INTO t VALUES (1, 1)",
			"CREATE TABLE u (a); INSERT INTO t VALUES (1, 2)", activities.High},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "CREATE TABLE gone (n); INSERT INTO gone VALUES (1);"+c.schema)
			e, s := b.step("sqlite.exec", params{"sql": c.sql})
			change, err := b.local.Plan(t.Context(), e, s)
			require.NoError(t, err)
			require.Equal(t, c.want, change.Risk, change)
		})
	}
}
