package sweep_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/internal/sweep"
)

func TestWhatChangesAllRowsIsFound(t *testing.T) {
	for sql, want := range map[string]string{
		"DELETE FROM t":                                                                        "DELETE",
		"delete from t where id = 1":                                                           "",
		"DELETE FROM t -- where id = 1":                                                        "DELETE",
		"DELETE /* where */ FROM \"where\"":                                                    "DELETE",
		"UPDATE t SET note = 'where'":                                                          "UPDATE",
		"UPDATE t SET a = 1 WHERE b = 2":                                                       "",
		"SELECT 1; UPDATE t SET a = 1":                                                         "UPDATE",
		"UPDATE t SET a = 1; SELECT 1 WHERE 1":                                                 "UPDATE",
		"WITH x AS (SELECT 1) DELETE FROM t":                                                   "DELETE",
		"INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET a = 1":                             "",
		"CREATE TABLE c (p REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)":                  "",
		"CREATE TRIGGER g AFTER DELETE ON t BEGIN DELETE FROM u; UPDATE v SET a = 1; END":      "",
		"CREATE TEMP TRIGGER g AFTER UPDATE ON t BEGIN UPDATE v SET a = 1; END; DELETE FROM t": "DELETE",
		"CREATE TABLE a (b); DELETE FROM a":                                                    "DELETE",
		"":                                                                                     "",
		";;":                                                                                   "",
	} {
		require.Equal(t, want, sweep.FindIn(sql), sql)
	}
}

func TestWhatOnlyAddsIsKnown(t *testing.T) {
	for sql, want := range map[string]bool{
		"ALTER TABLE t ADD COLUMN a; CREATE TABLE u (b); CREATE INDEX i ON u (b)": true,
		"ALTER TABLE main.t ADD a":                                true,
		"ALTER TABLE \"a b\" ADD c":                               true,
		"CREATE TABLE u (b); INSERT INTO u VALUES ('replace')":    true,
		"CREATE TABLE u (b); INSERT OR REPLACE INTO t VALUES (1)": false,
		"ALTER TABLE t RENAME add TO b":                           false,
		"ALTER TABLE t DROP add":                                  false,
		"CREATE TABLE u (b); DROP TABLE t":                        false,
		"CREATE TABLE u (b); DELETE FROM t":                       false,
		"CREATE TABLE u (b); PRAGMA x = 1":                        false,
	} {
		require.Equal(t, want, sweep.OnlyAdds(sql), sql)
	}
}

func TestALockOfRowsIsNoUpdate(t *testing.T) {
	require.Empty(t, sweep.Find([]string{"select", "1", "from", "t", "for", "no", "key", "update"}))
	require.Empty(t, sweep.Find([]string{"merge", "into", "t", "when", "matched", "then", "update", "set"}))
}
