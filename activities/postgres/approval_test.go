package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
)

// TestAnApprovalCoversWhatWillBeWritten: what a person has seen is what is written, and what
// differs each time is said to.
func TestAnApprovalCoversWhatWillBeWritten(t *testing.T) {
	t.Parallel()
	const schema = `CREATE TABLE account (id int PRIMARY KEY, role text, at timestamptz DEFAULT now());
		INSERT INTO account VALUES (1, 'user'), (2, 'user');
		CREATE TABLE scratch (id int PRIMARY KEY, v text); INSERT INTO scratch VALUES (1, 'viewer');
		CREATE TABLE many (id int PRIMARY KEY); INSERT INTO many SELECT generate_series(1, 999);
		CREATE TABLE event (n bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, token uuid NOT NULL DEFAULT gen_random_uuid(),
		what text)`
	const set = "UPDATE account SET role = (SELECT v FROM scratch), at = clock_timestamp()"
	volatile := func(table, columns string) string {
		return "table public." + table + ": what is written to " + columns +
			" differs each time the statements run: an approval does not cover it"
	}
	shifting := func(table string) string {
		return "table public." + table +
			": the statements change other rows each time that they run: an approval will be stale; choose the rows by what " +
			"is in them"
	}
	for name, c := range map[string]struct {
		sql, others string
		told        []string
		isStale     bool
	}{
		"a value that is read elsewhere": {set + " WHERE id = 1", "UPDATE scratch SET v = 'admin'",
			[]string{volatile("account", "at")}, true},
		"and is the same": {set + " WHERE id = 1", "UPDATE scratch SET v = v",
			[]string{volatile("account", "at")}, false},
		"the time of the transaction": {"UPDATE account SET at = now()", "SELECT 1", []string{volatile("account", "at")},
			false},
		"rows that come": {"INSERT INTO event (what) SELECT v FROM scratch", "SELECT 1",
			[]string{volatile("event", "n, token")}, false},
		"rows that come with other values": {"INSERT INTO event (what) SELECT v FROM scratch",
			"UPDATE scratch SET v = 'admin'", []string{volatile("event", "n, token")}, true},
		"rows that go": {"DELETE FROM account", "UPDATE scratch SET v = 'admin'", nil, false},
		"rows that are drawn": {"DELETE FROM many WHERE random() < 0.5", "SELECT 1", []string{shifting("many")},
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, schema)
			s := d.exec(c.sql)
			planned := s.plan()
			for _, fact := range c.told {
				require.Contains(t, planned.Facts, fact)
			}
			d.run(c.others)
			before := d.dump()
			r, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			if c.isStale {
				require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v", err)
				require.Equal(t, before, d.dump())
				return
			}
			require.NoError(t, err)
			again, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			require.NoError(t, err)
			require.Equal(t, r, again, "the step has acted")
			s.undo(activities.Restored)
			require.Equal(t, before, d.dump())
		})
	}
}

// TestSensitiveColumnsStaySoUnderOtherNames: a step gives a column or its table another name, and
// shows its values as little as before.
func TestSensitiveColumnsStaySoUnderOtherNames(t *testing.T) {
	t.Parallel()
	for _, rename := range [][]string{
		{"ALTER TABLE person RENAME secret TO open"},
		{"ALTER TABLE person RENAME TO member", "ALTER TABLE member RENAME secret TO open",
			"ALTER TABLE member RENAME TO person"},
	} {
		d := newDatabase(t, people)
		d.limit(postgres.Database{Sensitive: []string{"public.person.secret"}})
		s := d.exec(append(rename, "UPDATE person SET mail = mail || '!' WHERE id = 1", "DELETE FROM person WHERE id = 2")...)
		planned := s.plan()
		require.Contains(t, planned.Diff, "open=***")
		require.NotContains(t, planned.Diff, "secret 2")
		s.apply()
		d.run("UPDATE person SET mail = 'theirs' WHERE id = 1")
		drifted := s.undo(activities.Drifted)
		require.Contains(t, drifted.Drift.Diff, "theirs")
		require.NotContains(t, drifted.Drift.Diff, "secret 1")
	}
}
