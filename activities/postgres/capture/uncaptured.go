package capture

import (
	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Counts are the rows that the running transaction has inserted, updated and deleted, by the id of
// the table.
type Counts map[uint32]int64

// Count reads the server's own counts, also of what was rolled back to a savepoint.
func Count(c *server.Connection) (Counts, error) {
	type row struct {
		ID uint32
		N  int64
	}
	// The view pg_stat_xact_all_tables says the same, after a join with all indexes.
	all, err := server.Collect(c, pgx.RowToStructByPos[row], `SELECT oid, n FROM (SELECT oid,
			pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid)
			AS n
			FROM pg_class WHERE relkind IN ('r', 'm', 'p')) s WHERE n > 0`)
	found := Counts{}
	for _, each := range all {
		found[each.ID] = each.N
	}
	return found, err
}

// Uncaptured are tables without a trigger that the statements have changed. They have to be
// prepared, and the statements to run again.
type Uncaptured struct{ Tables []uint32 }

func (u Uncaptured) Error() string {
	return activities.CountOf(len(u.Tables), "table") + " not prepared"
}
