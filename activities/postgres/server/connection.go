package server

import (
	"context"
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

// settings make the text of a value the same in each of our sessions, so that it can be read back. The server ends the transaction of a
// worker that was stopped.
const settings = `SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex';
SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET lc_monetary = 'C'; SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '60s'`

// Connection is a connection for one call.
type Connection struct {
	*pgx.Conn
	Database

	Ctx  context.Context //nolint:containedctx // a connection serves one call, and ends with it
	Name string          // of the database in the worker's config
	ID   string          // of the database: that of its server, and its number there
}

// Connect opens a connection to the database with this name, and gives it the name of an application on the server. Its errors name no part of
// the connection string.
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
		return nil, activities.Errorf(activities.Refused, "database %s: the connection string is not one of PostgreSQL; write postgres://USER:PASSWORD@HOST/DATABASE", name)
	}
	activities.MaskerFrom(ctx).Add(dsn)
	activities.MaskerFrom(ctx).Add(config.Password)
	if other != "" {
		config.Database = other
	}
	config.ConnectTimeout = connectLimit
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.RuntimeParams["application_name"] = application
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, CancelRequestDelay: 0, DeadlineDelay: 5 * time.Second}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explainConnect(ctx, name, err)
	}
	c := &Connection{Conn: conn, Database: d, Ctx: ctx, Name: name}
	if err := c.begin(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin checks the server and finds out which database it is.
func (c *Connection) begin() error {
	var version int
	var standby bool
	const ask = `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		(SELECT system_identifier FROM pg_control_system())::text || '-' || (SELECT oid FROM pg_database WHERE datname = current_database())`
	if err := c.Run(settings); err != nil {
		return err
	}
	if err := c.QueryRow(c.Ctx, ask).Scan(&version, &standby, &c.ID); err != nil {
		return c.Explain(err)
	}
	if version < oldest {
		return activities.Errorf(activities.Refused, "database %s: the server is PostgreSQL %d; %d or newer is needed", c.Name, version/10000, oldest/10000)
	}
	if standby {
		return activities.Errorf(activities.Refused, "database %s: the server is a read-only replica; name the primary", c.Name)
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
