package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// spares are two more tables with rows.
const spares = `; CREATE TABLE spare (a int PRIMARY KEY); INSERT INTO spare VALUES (1), (2), (3)`

// harmed is what is done to the journal when two steps have acted, the first of which has record 1.
type harmed struct {
	name   string
	first  string // the first step; empty: it changes rows
	other  string // the other step; empty: it changes as many rows of the same table
	undone bool   // the first step is undone before, and the other one as if it had never acted
	harm   string // :A and :B are the tokens
}

// TestHarmToEachDocument: two steps have acted. Each part of what the journal has of the first one
// is deleted, cut, replaced by that of the other one, or put back to what it was before. Whatever
// the history knows, the undo is right or says that the record is damaged; then nothing is touched
// or released, and once the record is whole, the undo is right.
func TestHarmToEachDocument(t *testing.T) {
	t.Parallel()
	swap := func(columns ...string) string {
		var sets []string
		for _, column := range columns {
			sets = append(sets, fmt.Sprintf("%[1]s = b.%[1]s", column))
		}
		return "UPDATE unwind.record a SET " + strings.Join(sets, ", ") +
			" FROM unwind.record b WHERE a.token = ':A' AND b.token = ':B'"
	}
	set := func(what string) string { return "UPDATE unwind.record SET " + what + " WHERE token = ':A'" }
	all := []harmed{
		{name: "row deleted", harm: "DELETE FROM unwind.record WHERE token = ':A'"},
		{name: "tables and result deleted", harm: set("tables = NULL, result = NULL")},
		{name: "tables, result and alterations deleted", harm: set("tables = NULL, result = NULL, alterations = NULL")},
		{name: "all but the state another's", harm: swap("entry", "result", "tables", "alterations", "rows", "outcome"),
			other: "DELETE FROM team WHERE id = 3"},
		{name: "all that it changed another's", harm: swap("result", "tables", "alterations", "rows"),
			other: "DELETE FROM team WHERE id = 3"},
		{name: "seal deleted", harm: set("result = (result::jsonb - 'seal')::text")},
		{name: "rows changed", harm: set("rows = rows + 1")},
		{name: "state released", harm: set("state = 'released'")},
		{name: "state undone", harm: set("state = 'undone'")},
		{name: "state undoing", harm: set("state = 'undoing'")},
		{name: "state cut", harm: set("state = 'appl'")},
		{name: "changes deleted", harm: "DELETE FROM unwind.change WHERE record = 1"},
		{name: "change deleted",
			harm: "UPDATE unwind.change SET old = old[2:], new = new[2:], version = ARRAY[xmin] WHERE record = 1"},
		{name: "changes another's",
			harm: "UPDATE unwind.change SET record = CASE record WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE record END, version = " +
				"ARRAY[xmin, xmin]"},
		{name: "content of changes cut",
			harm: "UPDATE unwind.change SET old[1] = '(1,p1,,1)', version = ARRAY[xmin, xmin] WHERE record = 1"},
		{name: "mark deleted", harm: "DELETE FROM unwind.change WHERE new = ARRAY[':A']"},
		{name: "row deleted after the undo", undone: true, harm: "DELETE FROM unwind.record WHERE token = ':A'"},
		{name: "outcome deleted", undone: true, harm: set("outcome = NULL")},
		{name: "outcome cut", undone: true, harm: set("outcome = left(outcome, 9)")},
		{name: "owner of the outcome deleted", undone: true, harm: set("outcome = (outcome::jsonb - 'token')::text")},
		{name: "outcome another's", undone: true, harm: swap("outcome")},
		{name: "row another's after the undo", undone: true,
			harm: swap("entry", "result", "tables", "alterations", "rows", "outcome", "state")},
		{name: "state of before the undo", undone: true, harm: set("state = 'applied'")},
		{name: "row of before the undo", undone: true,
			harm: set("state = 'applied', outcome = NULL, begun = NULL, ended = NULL")},
		{
			name: "a table that was dropped is another's", first: "DROP TABLE spare", other: "DROP TABLE team CASCADE",
			harm: "ALTER SCHEMA unwind_1_1 RENAME TO aside; ALTER SCHEMA unwind_2_1 RENAME TO unwind_1_1; ALTER SCHEMA " +
				"aside RENAME TO unwind_2_1",
		},
		{name: "a table that was dropped is gone", first: "DROP TABLE spare", harm: "DROP SCHEMA unwind_1_1 CASCADE"},
		{
			name: "rows of a table that was truncated are gone", first: "TRUNCATE spare",
			harm: "DO $$ BEGIN EXECUTE (SELECT format('DELETE FROM unwind_1_1.%I WHERE a = 2', relname) FROM pg_class WHERE " +
				"relnamespace = 'unwind_1_1'::regnamespace AND relkind = 'r'); END $$",
		},
		{name: "alterations deleted", first: "ALTER TABLE spare ADD b int", harm: set("alterations = NULL")},
		{name: "alterations none", first: "ALTER TABLE spare ADD b int", harm: set("alterations = 'null'")},
		{name: "alterations another's", first: "ALTER TABLE spare ADD b int", harm: swap("alterations")},
		{name: "alterations other ones", first: "ALTER TABLE spare ADD b int", other: "ALTER TABLE team ADD b int",
			harm: swap("alterations")},
		{name: "all that it altered another's", first: "ALTER TABLE spare ADD b int", other: "ALTER TABLE team ADD b int",
			harm: swap("result", "tables", "alterations", "rows")},
	}
	for _, column := range []string{"entry", "result", "tables", "alterations"} {
		all = append(
			all,
			harmed{name: column + " cut", harm: set(fmt.Sprintf("%[1]s = left(%[1]s, length(%[1]s) / 2)", column))},
			harmed{name: column + " another's", harm: swap(column), other: "DELETE FROM team WHERE id = 3"},
		)
		if column != "entry" {
			all = append(all, harmed{name: column + " deleted", harm: set(column + " = NULL")})
		}
	}
	for _, one := range all {
		for _, decision := range []activities.Decision{{}, {Done: true}} {
			t.Run(fmt.Sprintf("%s, done %t", one.name, decision.Done), func(t *testing.T) {
				t.Parallel()
				testrun.Sampled(t)
				one.test(t, decision)
			})
		}
	}
}

func (h harmed) test(t *testing.T, decision activities.Decision) {
	d := newDatabase(t, people+spares)
	before := d.wholeDump()
	first, second := h.first, h.other
	if first == "" {
		first = "UPDATE person SET secret = 'x' WHERE id < 3"
	}
	if second == "" {
		second = "UPDATE person SET secret = 'y' WHERE id IN (11, 12)"
	}
	s, other := d.exec(first), d.exec(second)
	s.apply()
	if h.undone {
		s.undo(activities.Restored)
		other.decide(activities.Decision{}, activities.Nothing)
	} else {
		other.apply()
	}
	left := d.wholeDump()
	d.run(`CREATE TABLE unwind.saved_record AS TABLE unwind.record;
		CREATE TABLE unwind.saved_change AS SELECT n, record, relid, old, new, coalesce(version, array_fill(xmin,
		ARRAY[2])) AS version FROM unwind.change`)
	d.run(strings.NewReplacer(":A", s.entry.Token, ":B", other.entry.Token).Replace(h.harm))

	u, err := s.action.Undo(t.Context(), s.entry, decision)
	if err != nil {
		require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), err)
		if h.first == "" { // otherwise the harm itself shows
			require.Equal(t, left, d.wholeDump())
		}
		_, err = s.action.Apply(t.Context(), s.entry, s.with, "")
		require.Contains(t, []activities.ErrorType{activities.DamagedRecord, activities.Fenced}, activities.TypeOf(err), err)
		if d.value("SELECT coalesce(max(state), '') FROM unwind.record WHERE token = '"+s.entry.Token+"'") != "undone" {
			require.Error(t, s.action.Release(t.Context(), s.entry))
		}
		if h.first != "" {
			return // it is not brought back here
		}
		require.Equal(t, left, d.wholeDump())
		d.run(`DELETE FROM unwind.change; INSERT INTO unwind.change TABLE unwind.saved_change;
			DELETE FROM unwind.record; INSERT INTO unwind.record OVERRIDING SYSTEM VALUE TABLE unwind.saved_record`)
		u, err = s.action.Undo(t.Context(), s.entry, decision)
	}
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome, "%+v", u)
	if !h.undone {
		other.undo(activities.Restored)
	}
	require.Equal(t, before, d.wholeDump())
}

// What says who needs a record is deleted, cut or another's, one at a time: the record is not
// released.
func TestHarmToHolders(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people+spares)
	for i, harm := range []string{
		"UPDATE unwind.record SET holders = '[]' WHERE token = ':A'",
		"UPDATE unwind.record SET holders = '' WHERE token = ':A'",
		"UPDATE unwind.record SET holders = left(holders, 9) WHERE token = ':A'",
		"UPDATE unwind.record SET holders = (SELECT holders FROM unwind.record WHERE token = ':B') WHERE token = ':A'",
		"UPDATE unwind.change SET old = NULL WHERE new = ARRAY[':A']",
		"DELETE FROM unwind.change WHERE new = ARRAY[':A']",
	} {
		s, other := d.exec(fmt.Sprintf("INSERT INTO spare VALUES (%d)", 10+i)),
			d.exec(fmt.Sprintf("INSERT INTO spare VALUES (%d)", 100+i))
		s.apply()
		other.apply()
		holder := activities.Owner{Workflow: "rollback", Run: "run"}
		for _, token := range []string{s.entry.Token, other.entry.Token} {
			held, err := d.world.Records.Hold(t.Context(), token, holder)
			require.NoError(t, err)
			require.True(t, held)
		}
		require.NoError(t, d.world.Records.EndHold(t.Context(), other.entry.Token, holder))
		d.run(strings.NewReplacer(":A", s.entry.Token, ":B", other.entry.Token).Replace(harm))
		require.Error(t, s.action.Release(t.Context(), s.entry), harm)
		require.NoError(t, other.action.Release(t.Context(), other.entry))
		require.Equal(t, "applied", d.value("SELECT state FROM unwind.record WHERE token = '"+s.entry.Token+"'"))
	}
}
