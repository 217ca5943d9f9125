package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// A change of high risk is not made by a worker unless a person has approved it, and then as it was
// approved.
func TestHighRiskIsSeenInTheTransactionAndAsked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, "CREATE TABLE few (id int PRIMARY KEY, n int); CREATE TABLE many (id int PRIMARY KEY, n int);"+
		"INSERT INTO few VALUES (1, 1), (2, 2); INSERT INTO many SELECT i, i FROM generate_series(1, 40) i")
	worker := activities.WithApproval(t.Context(), activities.Approval{})
	for sql, risk := range map[string]activities.Risk{
		"DELETE FROM few":      activities.High,
		"UPDATE few SET n = 0": activities.High,
		"WITH gone AS (DELETE FROM few RETURNING id) SELECT 1":      activities.High,
		`DELETE FROM few AS "where"`:                                activities.High,
		"DELETE FROM few WHERE true":                                activities.Medium,
		"DELETE FROM many WHERE id > 20":                            activities.Medium,
		"DELETE FROM many WHERE id > 19":                            activities.High,
		"UPDATE many SET n = 0 WHERE id > 19":                       activities.High,
		"UPDATE many SET n = 0 WHERE id > 20":                       activities.Medium,
		"INSERT INTO few SELECT i, i FROM generate_series(3, 99) i": activities.Medium,
		"CREATE TABLE made (id int PRIMARY KEY, few int REFERENCES few); ALTER TABLE few ADD more text": activities.Medium,
		"ALTER TABLE few ADD made int REFERENCES many":                                                  activities.Medium,
		"ALTER TABLE few RENAME n TO m":                                                                 activities.High,
		"ALTER TABLE few ALTER n SET NOT NULL":                                                          activities.High,
		"DROP TABLE few":                                                                                activities.High,
	} {
		before := d.wholeDump()
		s := d.exec(sql)
		c := s.plan()
		require.Equal(t, risk, c.Risk, "%s: %v", sql, c.Facts)
		if risk != activities.High {
			continue
		}
		_, err := s.action.Apply(worker, s.entry, s.with, "")
		require.Equal(t, activities.Asks, activities.TypeOf(err), "%s: %v", sql, err)
		require.Equal(t, before, d.wholeDump(), sql)
	}
	s := d.exec("DELETE FROM many")
	approved := activities.WithApproval(t.Context(), activities.Approval{Consent: activities.Approved})
	_, err := s.action.Apply(approved, s.entry, s.with, s.plan().Digest)
	require.NoError(t, err)
	require.Equal(t, "0", d.value("SELECT count(*) FROM many"))
}
