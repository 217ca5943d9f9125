package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Preparation makes a database ready for steps before the first one runs, so that none has to wait
// for a lock on a table; and takes everything of Unwind away again. A step that meets a table that
// is not ready makes it so by itself.
type Preparation struct{ c *connection }

// OpenPreparation connects to one of the databases of a config. Close ends the connection.
func (c Config) OpenPreparation(ctx context.Context, database string) (*Preparation, error) {
	to, err := c.Databases.Connect(ctx, database, server.PrepareName)
	if err != nil {
		return nil, err
	}
	return &Preparation{&connection{to}}, nil
}

// Close ends the connection.
func (p *Preparation) Close() { p.c.Close() }

// SQL is what Apply runs: the journal if it is not there, and the triggers of tables that are not
// ready. Tables are SCHEMA.TABLE; none means all that steps may change.
func (p *Preparation) SQL(tables []string) (string, error) {
	there, err := p.c.hasJournal()
	if err != nil {
		return "", err
	}
	var parts []string
	if !there {
		parts = append(parts, Schema)
	}
	missing, err := p.unprepared(tables)
	for _, r := range missing {
		parts = append(parts, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '%s';\n%s\nCOMMIT;", capture.PrepareLock, r.SQL()))
	}
	return strings.Join(parts, "\n"), err
}

// Apply makes the journal, and tables ready one at a time: each under a lock that it waits for at
// most two seconds at a time, several times. It returns the tables that it made ready.
func (p *Preparation) Apply(tables []string) (prepared []string, err error) {
	if err := p.c.ensureJournal(); err != nil {
		return nil, err
	}
	missing, err := p.unprepared(tables)
	if err != nil {
		return nil, err
	}
	for _, r := range missing {
		if err := capture.PrepareShortly(p.c.Connection, []uint32{r.OID}); err != nil {
			return prepared, fmt.Errorf("%s: %w", r.FullName(), err)
		}
		prepared = append(prepared, r.FullName())
	}
	return prepared, nil
}

// Remove takes away the triggers and the journal. It refuses while the journal holds what an undo
// needs.
func (p *Preparation) Remove() error {
	there, err := p.c.hasJournal()
	if err != nil || !there {
		return err
	}
	var needed int
	if err := p.c.Scan("SELECT count(*) FROM unwind.record WHERE state IN ($1, $2)",
		[]any{recordkeeping.Applied, recordkeeping.Undoing},
		&needed); err != nil {
		return err
	}
	if needed > 0 {
		return refused(
			"database %s: its journal still needs %s; roll their tasks back, or wait until their rollback windows have closed",
			p.c.Name, activities.CountOf(needed, "undo record"))
	}
	captured, err := server.Collect(p.c.Connection, pgx.RowTo[string],
		`SELECT DISTINCT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_trigger t
			JOIN pg_class c ON c.oid = t.tgrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE `+server.IsTrigger+` AND t.tgparentid = 0 ORDER BY 1`)
	if err != nil {
		return err
	}
	for _, table := range captured {
		if err := capture.Shortly(p.c.Connection, func() error {
			return p.c.Run(capture.DropTriggers(table))
		}); err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
	}
	return p.c.Run("DROP SCHEMA unwind CASCADE")
}

// unprepared lists tables that steps may change and that are not ready.
func (p *Preparation) unprepared(tables []string) (missing []*capture.Relation, err error) {
	ids, err := server.Collect(p.c.Connection, pgx.RowTo[uint32],
		`SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND nspname !~ '^(pg_|information_schema$|unwind$)'
		AND nspname !~ $1`, schema.HoldingPattern)
	if err != nil {
		return nil, err
	}
	all, err := capture.Describe(p.c.Connection, ids)
	if err != nil {
		return nil, err
	}
	var unknown []error
	for _, name := range tables {
		i := slices.IndexFunc(all, func(r *capture.Relation) bool { return r.FullName() == name })
		if i < 0 {
			unknown = append(unknown, refused("database %s has no table %s; name it as SCHEMA.TABLE", p.c.Name, name))
		} else if err := p.c.checkTable(all[i]); err != nil {
			unknown = append(unknown, err)
		}
	}
	for _, r := range all {
		named := slices.Contains(tables, r.FullName())
		if !r.Captured && (named || tables == nil && p.c.checkTable(r) == nil && !p.c.Denies(r.FullName())) {
			missing = append(missing, r)
		}
	}
	return missing, errors.Join(unknown...)
}
