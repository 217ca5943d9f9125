package capture

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// CheckSettled refuses where a statement changed settings that the undo relies on, or tables of
// other servers. Record is what unwind.record has to be.
func CheckSettled(c *server.Connection, record string) error {
	var settled, foreign bool
	if err := c.Scan(`SELECT coalesce(current_setting('unwind.record', true), '') = $1
		AND current_setting('session_replication_role') = 'origin'
		AND current_setting('track_counts')::bool, EXISTS (SELECT FROM pg_class WHERE relkind = 'f')`,
		[]any{record}, &settled, &foreign); err != nil {
		return err
	}
	if !settled {
		return activities.Errorf(activities.Refused,
			"a statement changed settings of the connection that the undo relies on (unwind.record, "+
				"session_replication_role, track_counts); nothing was changed")
	}
	if !foreign {
		return nil
	}
	// A table of another server has no counts, but a lock.
	locked, err := server.Collect(c, pgx.RowTo[string],
		`SELECT DISTINCT l.relation::regclass::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE l.pid = pg_backend_pid() AND c.relkind = 'f' AND l.mode = 'RowExclusiveLock'`)
	if err == nil && len(locked) > 0 {
		err = activities.Errorf(activities.Refused,
			"%s: it is a foreign table; its server would not undo the change with ours", strings.Join(locked, ", "))
	}
	return err
}

// CheckTemporary refuses what the session has made for itself only: it would stand in for other
// things of the same name.
func CheckTemporary(c *server.Connection) error {
	made, err := server.Collect(c, pgx.RowTo[string],
		`SELECT relname::text FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind <> 'i'
		UNION SELECT proname::text FROM pg_proc WHERE pronamespace = pg_my_temp_schema()
		UNION SELECT typname::text FROM pg_type WHERE typnamespace = pg_my_temp_schema() AND typrelid = 0 AND typelem = 0
		ORDER BY 1`)
	if err == nil && len(made) > 0 {
		err = activities.Errorf(activities.Refused,
			"it makes %s for its own session only, which ends with the step; use a WITH query, or a table that is not temporary",
			strings.Join(made, ", "))
	}
	return err
}
