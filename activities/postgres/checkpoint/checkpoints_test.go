package checkpoint

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testrun.StopServers()
	os.Exit(code)
}

// strangers are journals of databases that have never replaced one.
type strangers struct{ RowJournals }

func (strangers) Continues(*server.Connection, string) (bool, error) { return false, nil }

func TestACheckpointFitsItsOwnDatabaseAndVersion(t *testing.T) {
	t.Parallel()
	at := postgrestest.Need(t)
	dsn := at.DSN(at.Database(t))
	all := server.Databases{"main": {DSN: func() (string, error) { return dsn, nil }}}
	require.NoError(t, all.With(t.Context(), "main", server.LookName, func(c *server.Connection) error {
		s := &Checkpoints{Databases: all, Rows: strangers{}}
		version, err := majorVersion(c)
		require.NoError(t, err)
		require.NoError(t, s.checkSame(c, "cp-1", checkpoint{ID: c.ID, Version: version}))
		for want, taken := range map[string]checkpoint{
			"a checkpoint goes back into its own database only": {ID: "1" + c.ID, Version: version},
			"was taken from PostgreSQL 9":                       {ID: c.ID, Version: 9},
		} {
			err := s.checkSame(c, "cp-1", taken)
			require.ErrorContains(t, err, want)
			require.Equal(t, activities.Refused, activities.TypeOf(err))
		}
		return nil
	}))
}

// TestPositionsOfSequencesAreNoContent, but a part of what is exact.
func TestPositionsOfSequencesAreNoContent(t *testing.T) {
	t.Parallel()
	one := manifest{"table public.t": {Digest: "a", Rows: -1}, "position of sequence public.s": {Digest: "1", Rows: -1,
		Position: true}}
	two := manifest{"table public.t": {Digest: "a", Rows: -1}, "position of sequence public.s": {Digest: "2", Rows: -1,
		Position: true}}
	require.Equal(t, one.digest(), two.digest())
	require.NotEqual(t, one.exact(), two.exact())
	require.Equal(t, "~ position of sequence public.s: another one", one.diff(two))
	require.Empty(t, one.content().diff(two.content()))
}
