package server

import (
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// Allows reports whether steps may change a table by Allow alone.
func (d Database) Allows(table string) bool { return len(d.Allow) == 0 || matchesAny(d.Allow, table) }

// Denies reports whether steps may not use a table.
func (d Database) Denies(table string) bool { return matchesAny(d.Deny, table) }

// IsSensitive reports whether the values of a column are not shown.
func (d Database) IsSensitive(column string) bool { return matchesAny(d.Sensitive, column) }

// IsSensitive reports whether the values of a column are not shown: under this name, or under one
// that it had before in this session.
func (c *Connection) IsSensitive(column string) bool {
	return c.Database.IsSensitive(column) || c.renamed[column]
}

// place is that of a column, whatever its name is.
type place struct {
	Table  uint32
	Number int16
}

// FollowSensitive notes which columns are sensitive, and which names those have that were so: a
// statement of the session may have given them others.
func (c *Connection) FollowSensitive() error {
	if len(c.Sensitive) == 0 {
		return nil
	}
	if c.sensitive == nil {
		c.sensitive, c.renamed = map[place]bool{}, map[string]bool{}
	}
	type column struct {
		Table  uint32
		Number int16
		Name   string
	}
	all, err := Collect(c, pgx.RowToStructByPos[column],
		`SELECT a.attrelid, a.attnum, n.nspname || '.' || c.relname || '.' || a.attname FROM pg_attribute a
			JOIN pg_class c ON c.oid = a.attrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE a.attnum > 0 AND NOT a.attisdropped
		AND c.oid >= $1`, FirstNormalObject)
	for _, each := range all {
		at := place{each.Table, each.Number}
		if isSensitive := c.Database.IsSensitive(each.Name); isSensitive || c.sensitive[at] {
			c.sensitive[at] = true
			if !isSensitive {
				c.renamed[each.Name] = true
			}
		}
	}
	return err
}

// matchesAny reports whether one of the patterns matches a dotted name.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		quoted := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, ".*")
		ok, _ := regexp.MatchString("^"+quoted+"$", name)
		return ok
	})
}

// CheckReads refuses tables that the worker's config denies: each table that a statement uses is
// locked.
func (c *Connection) CheckReads() error {
	if len(c.Deny) == 0 {
		return nil
	}
	used, err := Collect(c, pgx.RowTo[string],
		`SELECT DISTINCT n.nspname || '.' || c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
		AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`)
	if err != nil {
		return err
	}
	for _, name := range used {
		if c.Denies(name) {
			return activities.Errorf(activities.Refused, "%s: this worker's config denies it in database %s", name, c.Name)
		}
	}
	return nil
}

// UsesSensitive reports whether a table that the transaction uses has a sensitive column. Which
// columns a value comes from is not known: it may be computed from them.
func (c *Connection) UsesSensitive() (bool, error) {
	if len(c.Sensitive) == 0 {
		return false, nil
	}
	used, err := Collect(c, pgx.RowTo[string],
		`SELECT DISTINCT n.nspname || '.' || c.relname || '.' || a.attname FROM pg_locks l
			JOIN pg_class c ON c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`)
	return slices.ContainsFunc(used, c.IsSensitive), err
}
