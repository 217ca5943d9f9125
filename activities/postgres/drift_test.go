package postgres_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/testrun"
)

const people = `CREATE TABLE team (id int PRIMARY KEY); CREATE TABLE person (id int PRIMARY KEY, mail text UNIQUE,
	secret text, team int REFERENCES team ON DELETE CASCADE);
	INSERT INTO team SELECT generate_series(1, 3); INSERT INTO person SELECT g, 'p' || g, 'secret ' || g, 1
	FROM generate_series(1, 40) g`

// TestWhatOthersChangedIsShownAndNotTouched: each kind of drift, and whether a person can force it.
func TestWhatOthersChangedIsShownAndNotTouched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step, others string
		shows        []string
		force        bool
	}{
		"a row that the step changed": {"UPDATE person SET mail = 'x' WHERE id = 1",
			"UPDATE person SET mail = 'y' WHERE id = 1", []string{"1 row changed", `- id=1 mail="x"`, `+ id=1 mail="y"`}, true},
		"a row that the step changed is gone": {"UPDATE person SET mail = 'x' WHERE id = 1",
			"DELETE FROM person WHERE id = 1", []string{`- id=1 mail="x"`}, true},
		"changed, and changed back": {"UPDATE person SET mail = 'x' WHERE id = 1",
			"UPDATE person SET mail = 'y' WHERE id = 1; UPDATE person SET mail = 'x' WHERE id = 1", []string{"1 row changed"},
			true},
		"a key that the step deleted": {"DELETE FROM person WHERE id = 1",
			"INSERT INTO person VALUES (1, 'again', '', 1)", []string{`+ id=1 mail="again"`}, true},
		"a row that the step inserted": {"INSERT INTO person VALUES (50, 'x')",
			"UPDATE person SET mail = 'y' WHERE id = 50", []string{`+ id=50 mail="y"`}, true},
		"many rows": {"UPDATE person SET secret = ''", "UPDATE person SET mail = mail || '!'",
			[]string{"40 rows"}, true},
		"another row has the unique value": {"DELETE FROM person WHERE id = 1",
			"INSERT INTO person VALUES (60, 'p1', '', 1)", []string{"cannot be put back", "(mail)=(p1) already exists"}, false},
		"another row refers to an inserted one": {
			"INSERT INTO team VALUES (9)", "INSERT INTO person VALUES (60, 'x', '', 9)", []string{"person_team_fkey", "id=60"},
			false,
		},
		"the row that a deleted one refers to is gone": {
			"DELETE FROM person", "DELETE FROM team WHERE id = 1", []string{"person_team_fkey", "team"}, false,
		},
		"a column was added": {"DELETE FROM person WHERE id = 1", "ALTER TABLE person ADD late int",
			[]string{"table public.person was altered", "late integer"}, false},
		"a column was dropped": {"DELETE FROM person WHERE id = 1", "ALTER TABLE person DROP mail",
			[]string{"table public.person was altered"}, false},
		"the table is gone": {"DELETE FROM person WHERE id = 1", "DROP TABLE person",
			[]string{"table public.person is gone"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, people)
			before := d.dump()
			s := d.exec(c.step)
			s.apply()
			d.run(c.others)
			theirs := d.dump()
			shown := s.undo(activities.Drifted)
			for _, each := range c.shows {
				require.Contains(t, shown.Drift.Diff, each)
			}
			require.LessOrEqual(t, strings.Count(shown.Drift.Diff, "\n"), 3*20+2)
			require.Equal(t, theirs, d.dump())
			forced := activities.Decision{Force: shown.Drift.Digest}
			if c.force {
				s.decide(forced, activities.Restored)
				require.Equal(t, before, d.dump())
				return
			}
			s.decide(forced, activities.Drifted)
			require.Equal(t, theirs, d.dump())
		})
	}
}

func TestTriggersDoNotRunAgainAndWhatOthersDidElsewhereStays(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people, `CREATE TABLE audit (n bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, what text);
		CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (what) VALUES (TG_OP);
		RETURN NULL; END $$;
		CREATE TRIGGER log AFTER INSERT OR UPDATE OR DELETE ON person FOR EACH ROW EXECUTE FUNCTION log()`)
	s := d.exec("UPDATE person SET secret = '' WHERE id < 10")
	s.apply()
	require.Equal(t, "9", d.value("SELECT count(*) FROM audit"))
	d.run("UPDATE person SET secret = 'theirs' WHERE id = 30")
	s.undo(activities.Restored)
	require.Equal(t, "1", d.value("SELECT count(*) FROM audit"))
	require.Equal(t, "theirs", d.value("SELECT secret FROM person WHERE id = 30"))
	require.Equal(t, "secret 1", d.value("SELECT secret FROM person WHERE id = 1"))
	d.run("DELETE FROM person WHERE id = 1")
	require.Equal(t, "2", d.value("SELECT count(*) FROM audit"), "triggers of others run as before")
}

func TestLaterStepsOnTheSameRowsAreUndoneFirst(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	before := d.dump()
	first := d.exec(
		"UPDATE person SET mail = 'a' WHERE id = 1; DELETE FROM team WHERE id = 3; INSERT INTO team VALUES (4), (5)")
	second := d.exec(
		"UPDATE person SET mail = 'b' WHERE id = 1; DELETE FROM team WHERE id IN (1, 4); INSERT INTO team VALUES (3)")
	first.apply()
	second.apply()
	first.undo(activities.Drifted)
	second.undo(activities.Restored)
	first.undo(activities.Restored)
	require.Equal(t, before, d.dump())
}

func TestThePlanShowsRowsSideBySideAndMasksWhatIsSensitive(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	d.limit(postgres.Database{Sensitive: []string{"public.*.secret"}})
	s := d.exec("UPDATE person SET secret = 'known', mail = mail || '!'", "DELETE FROM team WHERE id = 3",
		"INSERT INTO team VALUES (4)")
	c := s.plan()
	require.Equal(t, "main: public.person: 40 rows changed; public.team: 1 row added, 1 removed", c.Summary)
	require.Contains(t, c.Diff, "- id=1 mail=\"p1\" secret=***\n+ id=1 mail=\"p1!\" secret=***\n")
	require.Contains(t, c.Diff, "  ... and 20 more\n")
	require.Contains(t, c.Diff, "- id=3\n+ id=4\n")
	require.NotContains(t, c.Diff, "known")
	require.Contains(t, c.Facts, "statements 1: UPDATE without WHERE")
	require.Contains(t, c.Facts, "table public.person: 40 rows")
	require.Equal(t, []activities.Count{{Of: "public.person", Changed: 40}, {Of: "public.team", Added: 1, Removed: 1}},
		c.Counts)
	require.Contains(t, c.Facts[len(c.Facts)-1], "public.person, public.team",
		"the first step says that it prepares tables")
	for _, sql := range []string{"UPDATE person SET id = NULL WHERE id = 1",
		"UPDATE person SET team = secret::int WHERE id = 1"} {
		failing := d.exec(sql)
		_, err := failing.action.Plan(t.Context(), failing.entry, failing.with)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret 1")
	}
	s.with.Checks = []activities.Check{
		{Query: &activities.QueryCheck{SQL: "SELECT upper(secret) FROM person WHERE id = 1", Expect: json.RawMessage(`"x"`)}}}
	_, err := s.action.Apply(t.Context(), s.entry, s.with, "")
	require.ErrorContains(t, err, `FROM person WHERE id = 1: it is ***, want "x"`)
	s.with.Checks[0].Query.Expect = json.RawMessage(`"KNOWN"`)
	s.apply()
	require.Len(t, d.exec("DELETE FROM person").plan().Facts, 3, "they are prepared now")
	require.True(t, d.exec("DELETE FROM person WHERE id = 0").plan().Unchanged)
}
