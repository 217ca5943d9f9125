package schema

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// What only adds things is known from what changes, or may have changed, what was there; and what
// takes it back from what leaves or takes something.
func TestAdditionsLeaveTheRestAsItWas(t *testing.T) {
	s := postgrestest.Need(t)
	dsn := s.Admin(s.Database(t,
		`CREATE TABLE old (id int PRIMARY KEY, n int); CREATE VIEW seen AS SELECT id FROM old; CREATE SEQUENCE numbers;
			CREATE TYPE mood AS ENUM ('sad');
		CREATE TABLE root (id int) PARTITION BY RANGE (id); CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE COLLATION plain FROM "C"; COMMENT ON COLLATION plain IS 'mine'`))
	all := server.Databases{"main": {DSN: func() (string, error) { return dsn, nil }}}
	c, err := all.Connect(t.Context(), "main", server.LookName)
	require.NoError(t, err)
	t.Cleanup(c.Close)

	for _, each := range []struct {
		does, back   string
		adds, isBack bool
	}{
		{"CREATE TABLE new (id serial PRIMARY KEY, n int DEFAULT 1 CHECK (n > 0), UNIQUE (n))", "DROP TABLE new", true, true},
		{"CREATE TABLE new AS SELECT * FROM old", "DROP TABLE new", true, true},
		{"CREATE TABLE new (LIKE old INCLUDING ALL); COMMENT ON COLUMN new.n IS 'a number'", "DROP TABLE new", true, true},
		{"CREATE INDEX ON old (n)", "DROP INDEX old_n_idx", true, true},
		{"CREATE VIEW new AS SELECT n FROM old", "DROP VIEW new", true, true},
		{"CREATE MATERIALIZED VIEW new AS SELECT n FROM old", "DROP MATERIALIZED VIEW new", true, true},
		{"CREATE FUNCTION two(int) RETURNS int LANGUAGE sql AS 'SELECT 2'", "DROP FUNCTION two", true, true},
		{"CREATE TYPE span AS RANGE (subtype = int)", "DROP TYPE span", true, true},
		{"CREATE DOMAIN small AS int CHECK (VALUE < 9)", "DROP DOMAIN small", true, true},
		{"CREATE SCHEMA s CREATE TABLE a (id int)", "DROP SCHEMA s CASCADE", true, true},
		{"CREATE SEQUENCE more", "DROP SEQUENCE more", true, true},
		{"CREATE TABLE IF NOT EXISTS old (id int)", "", true, true},

		{"CREATE TABLE new (id int)", "", true, false},
		{"CREATE TABLE new (id int); CREATE TABLE newer (id int)", "DROP TABLE newer", true, false},
		{"CREATE TABLE new (id int)", "DROP TABLE new; DROP VIEW seen", true, false},
		{"CREATE TABLE new (id int)", "DROP TABLE new; COMMENT ON TABLE old IS 'another'", true, false},
		{"CREATE TABLE new (id int)", "DROP TABLE new; ALTER TABLE old ALTER n SET NOT NULL", true, false},
		{"CREATE TABLE new (id int)", "DROP TABLE new; CREATE PUBLICATION p", true, false},

		{"CREATE TABLE new (id int REFERENCES old)", "", false, false},
		{"CREATE TABLE new PARTITION OF root FOR VALUES FROM (1) TO (2)", "", false, false},
		{"CREATE TABLE new () INHERITS (old)", "", false, false},
		{"CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 11'", "", false, false},
		{"CREATE RULE r AS ON DELETE TO old DO ALSO NOTHING", "", false, false},
		{"CREATE PUBLICATION p", "", false, false},
		{"ALTER TYPE mood ADD VALUE 'glad'", "", false, false},
		{"ALTER TABLE old ADD COLUMN m int", "", false, false},
		{"COMMENT ON VIEW seen IS 'of old'", "", false, false},
		{"GRANT SELECT ON old TO PUBLIC", "", false, false},
		{"DROP VIEW seen", "", false, false},
		{"CREATE TABLE new (id int); DROP TABLE new", "", false, false},
		{"DO $$ BEGIN <<inner>> BEGIN CREATE SCHEMA gone; RAISE 'back'; EXCEPTION WHEN OTHERS THEN END; ALTER SCHEMA " +
			"public OWNER TO " + postgrestest.Role + "; END $$", "", false, false},
		{"DO $$ BEGIN <<inner>> BEGIN COMMENT ON VIEW seen IS 'x'; RAISE 'back'; EXCEPTION WHEN OTHERS THEN END; COMMENT ON " +
			"COLLATION plain IS 'another'; END $$", "", false, false},
		{"DO $$ BEGIN <<inner>> BEGIN DROP VIEW seen; RAISE 'back'; EXCEPTION WHEN OTHERS THEN END; END $$", "", false,
			false},
	} {
		require.NoError(t, c.Run("BEGIN; CREATE TABLE earlier (id int); SAVEPOINT statement"))
		before, err := LookAtCatalogs(c)
		require.NoError(t, err)
		require.NoError(t, c.Run(each.does), each.does)
		added, err := before.FindAdditions(c)
		require.NoError(t, err)
		require.Equal(t, each.adds, added != nil, each.does)
		if added != nil {
			things, err := ObjectsOf(c, added.IDs)
			require.NoError(t, err)
			for _, o := range things {
				require.NotContains(t, []string{"public.old", "public.earlier"}, o.Name, each.does)
			}
			if each.back != "" {
				require.NoError(t, c.Run(each.back), each.back)
			}
			isBack, err := added.AreTakenBack(c)
			require.NoError(t, err)
			require.Equal(t, each.isBack, isBack, "%s, and %s", each.does, each.back)
		}
		c.Rollback()
	}
}
