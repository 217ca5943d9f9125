package schema

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Content is a digest of the rows of a table; there is false where the table is gone, or another
// one has its name. A materialized view may have none.
func Content(c *server.Connection, oid uint32, table string) (digest string, there bool, err error) {
	if err := c.Scan("SELECT coalesce(to_regclass($1)::oid = $2, false)", []any{table, oid}, &there); err != nil ||
		!there {
		return "", false, err
	}
	var populated bool
	if err := c.Scan("SELECT relispopulated FROM pg_class WHERE oid = $1", []any{oid}, &populated); err != nil ||
		!populated {
		return notPopulated, true, err
	}
	digest, err = DigestRows(c, table)
	return digest, true, err
}

const notPopulated = "not populated"

// DigestRows is a digest of the rows of a table, in whichever order they are.
func DigestRows(c *server.Connection, table string) (digest string, err error) {
	err = c.Canonically(func() error {
		return c.Scan(
			"SELECT count(*) || CASE count(*) WHEN 1 THEN ' row, ' ELSE ' rows, ' END || "+
				"coalesce(sum(hashtextextended((q.*)::text, 0)), 0) FROM "+table+" q", nil, &digest)
	})
	return digest, err
}

// LockContents keeps others from changing tables, and from reading those that are not only to be
// changed in rows.
func LockContents(c *server.Connection, names map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var isTable bool
		if err := c.Scan(
			"SELECT coalesce((SELECT relkind IN ('r', 'p') AND oid >= 16384 FROM pg_class WHERE oid = to_regclass($1)), false)",
			[]any{name}, &isTable); err != nil {
			return err
		}
		mode := map[bool]string{true: "ACCESS EXCLUSIVE", false: "SHARE ROW EXCLUSIVE"}[names[name]]
		if !isTable {
			continue
		}
		if err := c.Run(fmt.Sprintf("LOCK TABLE ONLY %s IN %s MODE", name, mode)); err != nil {
			return err
		}
	}
	return nil
}

// ReadContents reads what is in each of these now; nil where there is no such thing.
func ReadContents(c *server.Connection, names map[string]bool) (map[string]*string, error) {
	all := map[string]*string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var kind *string
		var populated *bool
		if err := c.Scan(
			"SELECT (SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)), (SELECT relispopulated FROM pg_class "+
				"WHERE oid = to_regclass($1))", []any{name}, &kind, &populated); err != nil {
			return nil, err
		}
		if kind == nil {
			continue
		}
		var digest string
		var err error
		switch {
		case *kind == "S":
			err = c.Scan("SELECT format('position %s%s', last_value, CASE WHEN NOT is_called THEN ' unused' END) FROM "+name,
				nil, &digest)
		case !*populated:
			digest = notPopulated
		default:
			digest, err = DigestRows(c, name)
		}
		if err != nil {
			return nil, err
		}
		all[name] = &digest
	}
	return all, nil
}
