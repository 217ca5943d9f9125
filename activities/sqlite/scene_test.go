package sqlite_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
)

// TestAQueryIsCheckedBeforeTheCommit: where it does not hold, nobody has ever seen the change.
func TestAQueryIsCheckedBeforeTheCommit(t *testing.T) {
	b := newBench(t, people)
	w, err := sqlite.New(sqlite.Config{State: filepath.Join(t.TempDir(), "state"), Roots: []string{filepath.Dir(b.path)}})
	require.NoError(t, err)
	journal, err := w.Journal(t.Context())
	require.NoError(t, err)
	before := b.dump()
	apply := func(action int, with params, checks ...activities.Check) error {
		e, s := b.step(w.Actions[action].Spec().Name, with)
		e.Place.Journal, s.Checks = journal, checks
		_, err := w.Actions[action].Apply(t.Context(), e, s, "")
		return err
	}
	query := func(sql, expect string) activities.Check {
		return activities.Check{Query: &activities.QueryCheck{SQL: sql, Expect: json.RawMessage(expect)}}
	}
	const sql = "DELETE FROM team WHERE name = 'blue'; ALTER TABLE team ADD COLUMN size INT"
	live := query("SELECT 1", "1")
	live.When = activities.Live
	for _, c := range []struct {
		check activities.Check
		says  string
		kind  activities.ErrorType
	}{
		{query("SELECT count(*) FROM team", "3"), "check 2 (query, staged): SELECT count(*) FROM team: it is 2, want 3",
			activities.CheckFailed},
		{query("SELECT name FROM team WHERE id = 99", `"x"`), "it is null", activities.CheckFailed},
		{query("SELECT id, name FROM team", "3"), "it must return one row of one column", activities.Refused},
		{query("DELETE FROM log", "null"), "the statement changes log", activities.Refused},
		{query("SELECT nix", "1"), "no such column: nix", activities.Refused},
		{live, "check[1]: when: live", activities.Refused},
	} {
		err := apply(0, params{"sql": sql}, query("SELECT 1", "1"), c.check)
		require.ErrorContains(t, err, c.says)
		require.Equal(t, c.kind, activities.TypeOf(err), err)
		require.Equal(t, before, b.dump())
	}
	require.ErrorContains(t, apply(1, params{"sql": "SELECT 1"}, query("SELECT count(*) FROM team", "4")),
		"it is 3, want 4")
	require.NoError(t,
		apply(0, params{"sql": sql}, query("SELECT count(size) FROM team", "0"),
			query("SELECT group_concat(name) FROM (SELECT name FROM team ORDER BY id)", `"red,green"`)))
	require.NotEqual(t, before, b.dump())
}
