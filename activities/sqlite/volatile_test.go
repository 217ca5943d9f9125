package sqlite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestWhatIsVolatileIsKnownByTheProgram plans statements, has what they would write changed, and
// applies them.
func TestWhatIsVolatileIsKnownByTheProgram(t *testing.T) {
	const tables = `
CREATE TABLE account (id INTEGER PRIMARY KEY, role, at);
CREATE TABLE stamped (role, at DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE watched (role); CREATE TABLE log (line);
CREATE TRIGGER watch AFTER INSERT ON watched BEGIN INSERT INTO log VALUES (hex(randomblob(4))); END;
CREATE VIEW dice AS SELECT random() AS value;
CREATE TABLE scratch (v);
INSERT INTO account VALUES (1, 'user', NULL);
INSERT INTO scratch VALUES ('viewer');
`
	const role = "(SELECT v FROM scratch)"
	for _, c := range []struct {
		with     params
		volatile string
	}{
		{params{"sql": "UPDATE account SET role = " + role}, ""},
		{params{"sql": "UPDATE account SET role = " + role + " /* random() */"}, ""},
		{params{"sql": "UPDATE account SET role = " + role + ", at = 'random()'"}, ""},
		{params{"sql": "UPDATE account SET role = " + role + ", at = date('2026-01-02', '+1 day')"}, ""},
		{params{"sql": "INSERT INTO account (role, at) VALUES (" + role + ", last_insert_rowid() + changes())"}, ""},
		{params{"sql": "UPDATE account SET role = " + role + ", at = RANDOM ( )"}, "random()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = datetime('NOW', 'localtime')"}, "datetime()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = unixepoch()"}, "unixepoch()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = strftime('%s', ?)", "params": []any{"now"}},
			"strftime()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = strftime('%s', :at)", "params": params{"at": "now"}},
			"strftime()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = CURRENT_DATE"}, "current_date()"},
		{params{"sql": "UPDATE account SET role = " + role + ", at = (SELECT value FROM dice)"}, "random()"},
		{params{"sql": "INSERT INTO stamped (role) VALUES (" + role + ")"}, "current_timestamp()"},
		{params{"sql": "INSERT INTO watched VALUES (" + role + ")"}, "randomblob()"},
		// the whole database is covered
		{params{"sql": "CREATE TABLE made (x); INSERT INTO made VALUES (random()); UPDATE account SET role = " + role}, ""},
		{params{"sql": "EXPLAIN UPDATE account SET role = random(); UPDATE account SET role = " + role}, ""},
	} {
		b := newBench(t, tables)
		e, s := b.step("sqlite.exec", c.with)
		change, err := b.local.Plan(t.Context(), e, s)
		require.NoError(t, err, c.with)
		facts := strings.Join(change.Facts, "\n")
		if c.volatile == "" {
			if change.Strategy == activities.Transaction {
				require.NotContains(t, facts, "differs each time", c.with)
			}
		} else {
			require.Contains(t, facts, "it uses "+c.volatile+", which differs each time: an approval covers", c.with)
		}
		shell(t, b.path, "UPDATE scratch SET v = 'admin'")
		_, err = b.local.Apply(t.Context(), e, s, change.Digest)
		if c.volatile == "" {
			require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v: %v", c.with, err)
		} else {
			require.NoError(t, err, c.with)
		}
	}
}
