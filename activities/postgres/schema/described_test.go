package schema

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Every catalog of the server is either described, with a column that tells whose its rows are, or
// a change of it is refused by both.
func TestEveryCatalogIsDescribedOrRefused(t *testing.T) {
	s := postgrestest.Need(t)
	dsn := s.Admin(s.Database(t))
	all := server.Databases{"main": {DSN: func() (string, error) { return dsn, nil }}}
	c, err := all.Connect(t.Context(), "main", server.LookName)
	require.NoError(t, err)
	t.Cleanup(c.Close)

	type catalog struct {
		ID   uint32
		Name string
		IDs  []string // the columns that hold an id
	}
	catalogs, err := server.Collect(c, pgx.RowToStructByPos[catalog], `SELECT c.oid, relname::text,
		array(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid
		AND atttypid IN ('oid'::regtype, 'regproc'::regtype))
		FROM pg_class c WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' ORDER BY 2`)
	require.NoError(t, err)
	require.Greater(t, len(catalogs), len(described))
	known := 0
	for _, each := range catalogs {
		others, err := Undescribed(c, []uint32{each.ID})
		require.NoError(t, err)
		builtIn, err := BuiltIn(c, []uint32{each.ID})
		require.NoError(t, err)
		if column, ok := described[each.Name]; ok {
			known++
			require.Contains(t, each.IDs, column, each.Name)
			require.Empty(t, others)
			require.Empty(t, builtIn, "nothing was changed")
			continue
		}
		require.Equal(t, []string{each.Name}, others)
		require.Equal(t, []string{each.Name}, builtIn)
	}
	require.Equal(t, len(described), known, "a catalog that this server does not have is described")
}

// TestEveryColumnOfADescribedCatalogIsKnown: this server has none that nobody has looked at. If it
// had one, a change of it would be described.
func TestEveryColumnOfADescribedCatalogIsKnown(t *testing.T) {
	s := postgrestest.Need(t)
	dsn := s.Admin(s.Database(t, "CREATE TABLE t (a int)"))
	all := server.Databases{"main": {DSN: func() (string, error) { return dsn, nil }}}
	c, err := all.Connect(t.Context(), "main", server.LookName)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	unknown, err := describeUnknown(c, knownColumns, nil)
	require.NoError(t, err)
	require.Empty(t, unknown)

	fewer := slices.DeleteFunc(slices.Clone(knownColumns), func(column string) bool {
		return column == "pg_class.reloptions" || column == "pg_namespace.nspacl"
	})
	was, err := describeUnknown(c, fewer, nil)
	require.NoError(t, err)
	require.NotEmpty(t, was)
	require.NoError(t, c.Run("ALTER TABLE t SET (fillfactor = 70)"))
	is, err := describeUnknown(c, fewer, nil)
	require.NoError(t, err)
	require.Len(t, is, len(was))
	require.NotEqual(t, was, is)
	require.NoError(t, c.Run("GRANT CREATE ON SCHEMA public TO PUBLIC"))
	granted, err := describeUnknown(c, fewer, nil)
	require.NoError(t, err)
	require.NotEqual(t, is, granted, "the schema public is somebody's, too")
	none, err := describeUnknown(c, fewer, []uint32{})
	require.NoError(t, err)
	require.Empty(t, none)
}
