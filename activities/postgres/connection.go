package postgres

import (
	"context"
	"errors"
	"fmt"
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
	// stuck is how long a transaction that does nothing may hold a record that another call needs. A running worker pauses for
	// milliseconds; one that was stopped, for ever.
	stuck = 2 * time.Second
)

// settings make the text of a value the same in each of our sessions, so that it can be read back. The server ends the transaction of a
// worker that was stopped.
const settings = `SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex';
SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET lc_monetary = 'C'; SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '60s'`

// connection is a connection for one call.
type connection struct {
	*pgx.Conn
	Database

	ctx  context.Context //nolint:containedctx // a connection serves one call, and ends with it
	name string
	id   string
}

// connect opens a connection. Its errors name no part of the connection string.
func (w *world) connect(ctx context.Context, name, application string) (*connection, error) {
	return w.connectTo(ctx, name, application, "")
}

// connectTo connects to another database of the same server, unless its name is empty.
func (w *world) connectTo(ctx context.Context, name, application, other string) (*connection, error) {
	d, known := w.Databases[name]
	if !known {
		return nil, w.unknownDatabase(name)
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
	c := &connection{Conn: conn, Database: d, ctx: ctx, name: name}
	if err := c.begin(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// begin checks the server and finds out which database it is.
func (c *connection) begin() error {
	var version int
	var standby bool
	const ask = `SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
		(SELECT system_identifier FROM pg_control_system())::text || '-' || (SELECT oid FROM pg_database WHERE datname = current_database())`
	if err := c.run(settings); err != nil {
		return err
	}
	if err := c.QueryRow(c.ctx, ask).Scan(&version, &standby, &c.id); err != nil {
		return c.explain(err)
	}
	if version < oldest {
		return activities.Errorf(activities.Refused, "database %s: the server is PostgreSQL %d; %d or newer is needed", c.name, version/10000, oldest/10000)
	}
	if standby {
		return activities.Errorf(activities.Refused, "database %s: the server is a read-only replica; name the primary", c.name)
	}
	return nil
}

func (c *connection) close() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Second)
	defer cancel()
	_ = c.Close(ctx) // it ends with the process at the latest
}

// run runs one of our own statements.
func (c *connection) run(sql string, args ...any) error {
	_, err := c.Exec(c.ctx, sql, args...)
	return c.explain(err)
}

// scan reads the only row that one of our own queries returns.
func (c *connection) scan(sql string, args []any, to ...any) error {
	return c.explain(c.QueryRow(c.ctx, sql, args...).Scan(to...))
}

// collect reads all rows that one of our own queries returns.
func collect[T any](c *connection, each pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := c.Query(c.ctx, sql, args...)
	if err != nil {
		return nil, c.explain(err)
	}
	all, err := pgx.CollectRows(rows, each)
	return all, c.explain(err)
}

// inTransaction runs do in a transaction that it commits, unless do fails.
func (c *connection) inTransaction(do func() error) error {
	if err := c.run("BEGIN"); err != nil {
		return err
	}
	if err := do(); err != nil {
		c.rollback()
		return err
	}
	return c.run("COMMIT")
}

func (c *connection) rollback() {
	_, _ = c.Exec(context.WithoutCancel(c.ctx), "ROLLBACK") // closing the connection does the same
}

func isCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if strings.HasPrefix(e.Code, code) {
			return true
		}
	}
	return false
}

func explainConnect(ctx context.Context, name string, err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ok && strings.HasPrefix(e.Code, "28"):
		return activities.Errorf(activities.Refused, "database %s: the server refuses the worker's role or password (%s); correct the secret that holds the connection string", name, e.Code)
	case ok && e.Code == "3D000":
		return activities.Errorf(activities.Refused, "database %s: there is no such database on the server; correct the secret that holds the connection string", name)
	case ok:
		return fmt.Errorf("database %s: the server refuses the connection: %s (%s)", name, e.Message, e.Code)
	}
	return fmt.Errorf("database %s: the server cannot be reached; it is tried again", name) // the cause holds parts of the connection string
}

// explain turns an error of the server into one of the contract. A statement that fails changes nothing: its transaction is rolled back.
func (c *connection) explain(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if _, isExplained := errors.AsType[*serverError](err); !ok || isExplained {
		return err
	}
	kind := activities.Refused
	switch {
	case isCode(err, "55P03"):
		return fmt.Errorf("database %s: something else holds a lock on what the statement needs; nothing was changed, it is tried again: %w", c.name, err)
	case isCode(err, "40", "53", "57", "08", "58", "XX", "25P03"):
		return fmt.Errorf("database %s: %w", c.name, err)
	case isCode(err, "23", "P0001", "44"):
		kind = activities.ActionDenied
	}
	return &serverError{activities.Errorf(kind, "database %s: %s [%s]; nothing was changed", c.name, c.describeError(e), e.Code), e}
}

// describeError says what the server says, except for what may quote a row of a database with sensitive columns.
func (c *connection) describeError(e *pgconn.PgError) string {
	text, detail := e.Message, e.Detail
	if len(c.Sensitive) > 0 {
		if isCode(e, "22") {
			text = "a value does not fit, and is not shown, because the database has sensitive columns"
		}
		if isCode(e, "22", "23", "44") {
			detail = ""
		}
	}
	if detail != "" {
		text += " (" + detail + ")"
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// serverError is an error of the server that trying again does not mend, as people are told of it.
type serverError struct {
	told *activities.Error
	said *pgconn.PgError
}

func (e *serverError) Error() string   { return e.told.Error() }
func (e *serverError) Unwrap() []error { return []error{e.told, e.said} }
