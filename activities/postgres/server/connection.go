package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/seed-62bf7108/unwind/activities"
)

const (
	connectLimit = 10 * time.Second
	// oldest is the first version with all functions that the journal uses, as server_version_num.
	oldest = 140000
)

// FirstNormalObject is the first id that is not of the server's own objects.
const FirstNormalObject = 16384

// settings make the text of a value the same in each of our sessions, so that it can be read back.
// The server ends the transaction of a worker that was stopped. To compile expressions takes a
// session of one call more time than it saves.
const settings = `SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1;
SET bytea_output = 'hex';
SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET lc_monetary = 'C'; SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '60s'; SET jit = off`

// canonical are the settings under which the text of a value is written where it is kept and
// compared, as the server writes them.
var canonical = [][2]string{{"DateStyle", "ISO, MDY"}, {"IntervalStyle", "postgres"}, {"TimeZone", "UTC"},
	{"extra_float_digits", "1"}, {"bytea_output", "hex"}, {"lc_monetary", "C"}}

// own are the settings of sessions that run no statement of a step: what a role or a database sets
// for others bounds no undo.
const own = `SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off;
SET default_transaction_deferrable = off;
SELECT set_config(name, '0', false) FROM unnest('{transaction_timeout,idle_session_timeout}'::text[]) name
WHERE current_setting(name, true) IS NOT NULL`

// CanonicalFor is the clause by which a function runs under the canonical settings, and what
// pg_proc.proconfig says then.
func CanonicalFor() (clause string, config []string) {
	for _, each := range canonical {
		clause += fmt.Sprintf(" SET %s = '%s'", each[0], each[1])
		config = append(config, each[0]+"="+each[1])
	}
	return clause, config
}

// Canonically runs do under the canonical settings, in the open transaction; a step's statements
// may have others.
func (c *Connection) Canonically(do func() error) error {
	names, values := make([]string, len(canonical)), make([]string, len(canonical))
	for i, each := range canonical {
		names[i], values[i] = each[0], each[1]
	}
	const set = "SELECT array_agg(set_config(name, value, true)) FROM unnest($1::text[], $2::text[]) s(name, value)"
	var were []string
	if err := c.Scan(
		"SELECT array_agg(current_setting(name) ORDER BY place) FROM unnest($1::text[]) WITH ORDINALITY s(name, place)",
		[]any{names}, &were); err != nil {
		return err
	}
	if slices.Equal(were, values) {
		return do()
	}
	if err := c.Run(set, names, values); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return c.Run(set, names, were)
}

// Connection is a connection for one call.
type Connection struct {
	*pgx.Conn
	Database

	Ctx  context.Context //nolint:containedctx // a connection serves one call, and ends with it
	Name string          // of the database in the worker's config
	ID   string          // of the database: that of its server, and its number there

	sensitive map[place]bool  // columns that are sensitive, or were under another name
	renamed   map[string]bool // the other names of those
}

// Connect opens a connection to the database with this name, and gives it the name of an
// application on the server. Its errors name no part of the connection string.
func (all Databases) Connect(ctx context.Context, name, application string) (*Connection, error) {
	return all.ConnectTo(ctx, name, application, "")
}

// ConnectTo connects to another database of the same server, unless its name is empty.
func (all Databases) ConnectTo(ctx context.Context, name, application, other string) (*Connection, error) {
	d, err := all.Find(name)
	if err != nil {
		return nil, err
	}
	dsn, err := d.DSN()
	if err != nil {
		return nil, activities.Errorf(activities.Refused, "database %s: the connection string: %v", name, err)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, activities.Errorf(activities.Refused,
			"database %s: the connection string is not one of PostgreSQL; write postgres://USER:PASSWORD@HOST/DATABASE", name)
	}
	activities.MaskerFrom(ctx).Add(dsn)
	activities.MaskerFrom(ctx).Add(config.Password)
	if other != "" {
		config.Database = other
	}
	config.ConnectTimeout = connectLimit
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.RuntimeParams["application_name"] = application
	if isOwn(application) { // from the start: a limit of a millisecond ends the SET that would lift it
		config.RuntimeParams["statement_timeout"] = "0"
	}
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, CancelRequestDelay: 0, DeadlineDelay: 5 * time.Second}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explainConnect(ctx, name, err)
	}
	c := &Connection{Conn: conn, Database: d, Ctx: ctx, Name: name}
	if err := c.begin(isOwn(application)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// isOwn reports whether the sessions of a name run no statements of steps.
func isOwn(application string) bool {
	return !strings.HasPrefix(application, ForwardName) && !strings.HasPrefix(application, PlanName)
}

// begin checks the server and finds out which database it is.
func (c *Connection) begin(isOwn bool) error {
	var version int
	var standby bool
	const ask = `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		(SELECT system_identifier FROM pg_control_system())::text || '-' || (SELECT oid FROM pg_database
		WHERE datname = current_database())`
	if err := c.Run(settings); err != nil {
		return err
	}
	if isOwn {
		if err := c.Run(own); err != nil {
			return err
		}
	}
	if err := c.QueryRow(c.Ctx, ask).Scan(&version, &standby, &c.ID); err != nil {
		return c.Explain(err)
	}
	if version < oldest {
		return activities.Errorf(activities.Refused, "database %s: the server is PostgreSQL %d; %d or newer is needed",
			c.Name, version/10000, oldest/10000)
	}
	if standby {
		return activities.Errorf(activities.Refused, "database %s: the server is a read-only replica; name the primary",
			c.Name)
	}
	return nil
}

// Close ends the connection.
func (c *Connection) Close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Ctx), time.Second)
	defer cancel()
	_ = c.Conn.Close(ctx) // it ends with the process at the latest
}

// Run runs one of our own statements.
func (c *Connection) Run(sql string, args ...any) error {
	_, err := c.Exec(c.Ctx, sql, args...)
	return c.Explain(err)
}

// Scan reads the only row that one of our own queries returns.
func (c *Connection) Scan(sql string, args []any, to ...any) error {
	return c.Explain(c.QueryRow(c.Ctx, sql, args...).Scan(to...))
}

// Collect reads all rows that one of our own queries returns.
func Collect[T any](c *Connection, each pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := c.Query(c.Ctx, sql, args...)
	if err != nil {
		return nil, c.Explain(err)
	}
	all, err := pgx.CollectRows(rows, each)
	return all, c.Explain(err)
}

// InTransaction runs do in a transaction that it commits, unless do fails.
func (c *Connection) InTransaction(do func() error) error {
	if err := c.Run("BEGIN"); err != nil {
		return err
	}
	if err := do(); err != nil {
		c.Rollback()
		return err
	}
	return c.Run("COMMIT")
}

// Rollback ends the open transaction, if there is one.
func (c *Connection) Rollback() {
	_, _ = c.Exec(context.WithoutCancel(c.Ctx), "ROLLBACK") // closing the connection does the same
}

// Quote is the name of a thing as SQL takes it, given its parts.
func Quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
