package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// An undo puts the rows of most tables back at once: it gives a row its old values, and does not
// make it anew.
func TestAnUndoChangesRowsBack(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		`CREATE TABLE t (id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, n numeric, at timestamptz,
			twice numeric GENERATED ALWAYS AS (n * 2) STORED, UNIQUE (n));
		INSERT INTO t (n, at) SELECT g, now() FROM generate_series(1, 6) g`)
	before := d.dump()
	s := d.exec("UPDATE t SET n = n + 10 WHERE id < 4", "DELETE FROM t WHERE id = 5",
		"INSERT INTO t (n) VALUES (50), (51)")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	// with what the step did, twice since the table was not ready; a session tells it when it ends
	require.Eventually(t, func() bool {
		return d.value(
			"SELECT concat_ws(' ', n_tup_upd, n_tup_del, n_tup_ins) FROM pg_stat_user_tables WHERE relname = 't'") == "9 4 11"
	}, time.Minute, time.Millisecond)
}

// What others have done since is found and told by an undo that has begun to put rows back, and by
// one whose rows no index tells apart any more.
func TestAnUndoThatHasBegunFindsDrift(t *testing.T) {
	t.Parallel()
	const schema = `CREATE TABLE a (id int PRIMARY KEY, n int UNIQUE);
		INSERT INTO a SELECT g, g FROM generate_series(1, 5) g; CREATE TABLE b (id int PRIMARY KEY);
		INSERT INTO b VALUES (1), (2)`
	for name, c := range map[string]struct{ others, shown string }{
		"a row changed": {"UPDATE a SET n = 70 WHERE id = 2",
			"public.a, as the step left it and as it is now:\n- id=2 n=12\n+ id=2 n=70\n"},
		"a row is gone": {"DELETE FROM a WHERE id = 2",
			"public.a, as the step left it and as it is now:\n- id=2 n=12\n"},
		"a key is there again": {"INSERT INTO b VALUES (1)", "+ id=1\n"},
		"a value is taken": {"INSERT INTO a VALUES (9, 2)",
			"rows of public.a cannot be put back beside what others have done since"},
		"a key is there twice":        {"ALTER TABLE b DROP CONSTRAINT b_pkey; INSERT INTO b VALUES (1)", "+ id=1\n"},
		"a row that came has changed": {"UPDATE a SET n = 70 WHERE id = 6", "- id=6 n=60\n+ id=6 n=70\n"},
		"a row that came is there twice": {"ALTER TABLE a DROP CONSTRAINT a_pkey; INSERT INTO a VALUES (6, 61)",
			"- id=6 n=60\n+ id=6 n=61\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, schema)
			s := d.exec("UPDATE a SET n = n + 10 WHERE id < 4", "INSERT INTO a VALUES (6, 60)", "DELETE FROM b WHERE id = 1")
			s.apply()
			d.run(c.others)
			left := d.wholeDump()
			u, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
			require.NoError(t, err)
			require.Equal(t, activities.Drifted, u.Outcome, "%+v", u)
			require.Contains(t, u.Drift.Diff, c.shown)
			require.Equal(t, left, d.wholeDump())
		})
	}
}

// A column that is computed may change rows that have been put back before.
func TestAnUndoSeesWhatAComputedColumnDoes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, `CREATE TABLE a (id int PRIMARY KEY, n int); INSERT INTO a VALUES (1, 1);
		CREATE FUNCTION touch() RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE a SET n = n + 1; RETURN 1; END $$;
		CREATE FUNCTION one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN touch(); END $$;
		CREATE TABLE b (id int PRIMARY KEY, n int, one int GENERATED ALWAYS AS (one(n)) STORED);
		INSERT INTO b (id, n) VALUES (1, 1)`)
	s := d.exec("UPDATE b SET n = 5")
	s.apply()
	left := d.dump()
	require.Contains(t, s.undo(activities.Drifted).Drift.Diff, "1 of 1 row of public.a would not be as before")
	require.Equal(t, left, d.dump())
}
