package capture

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// WithoutTriggers runs do without the triggers and rules that run whatever session_replication_role
// is: ENABLE ALWAYS and ENABLE REPLICA. What they changed in the step was captured. They are as
// they were when it returns; others see nothing of it, but wait for the table meanwhile.
func WithoutTriggers(c *server.Connection, tables []*Table, do func() error) error {
	ids := make([]uint32, len(tables))
	for i, t := range tables {
		ids[i] = t.OID
	}
	type switched struct{ Off, On string }
	all, err := server.Collect(c, pgx.RowToStructByPos[switched],
		`SELECT format('ALTER TABLE %s DISABLE %s %I', tab, what, name), format('ALTER TABLE %s ENABLE %s %s %I', tab,
			CASE how WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END, what, name)
		FROM (SELECT tgrelid AS id, 'TRIGGER' AS what, tgname AS name, tgenabled AS how FROM pg_trigger WHERE NOT tgisinternal
			UNION ALL SELECT ev_class, 'RULE', rulename, ev_enabled FROM pg_rewrite) s,
		LATERAL (SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS tab FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = id) t
		WHERE id = ANY($1::oid[]) AND how IN ('A', 'R') ORDER BY tab, what, name`, ids)
	if err != nil {
		return err
	}
	for _, each := range all {
		if err := c.Run(each.Off); err != nil {
			return fmt.Errorf(
				"a trigger that always runs would change rows while they are put back; the worker's role has to own the table: %w",
				err)
		}
	}
	if err := do(); err != nil {
		return err
	}
	for _, each := range all {
		if err := c.Run(each.On); err != nil {
			return err
		}
	}
	return nil
}
