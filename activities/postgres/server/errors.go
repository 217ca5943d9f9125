package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-62bf7108/unwind/activities"
)

// IsCode reports whether an error is one of the server with one of these codes, or with one that
// begins so.
func IsCode(err error, codes ...string) bool {
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
		return activities.Errorf(activities.Refused,
			"database %s: the server refuses the worker's role or password (%s); correct the secret that holds the "+
				"connection string", name, e.Code)
	case ok && e.Code == "3D000":
		return activities.Errorf(activities.Refused,
			"database %s: there is no such database on the server; correct the secret that holds the connection string", name)
	case ok:
		return fmt.Errorf("database %s: the server refuses the connection: %s (%s)", name, e.Message, e.Code)
	}
	// the cause holds parts of the connection string
	return fmt.Errorf("database %s: the server cannot be reached; it is tried again", name)
}

// Explain turns an error of the server into one of the contract. A statement that fails changes
// nothing: its transaction is rolled back.
func (c *Connection) Explain(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if _, isExplained := errors.AsType[*Error](err); !ok || isExplained {
		return err
	}
	kind := activities.Refused
	switch {
	case IsCode(err, "55P03"):
		return fmt.Errorf(
			"database %s: something else holds a lock on what the statement needs; nothing was changed, it is tried again: %w",
			c.Name, err)
	case IsCode(err, "40", "53", "57", "08", "58", "XX", "25P03"):
		return fmt.Errorf("database %s: %w", c.Name, err)
	case IsCode(err, "23", "P0001", "44"):
		kind = activities.ActionDenied
	}
	return &Error{activities.Errorf(kind, "database %s: %s [%s]; nothing was changed", c.Name, c.describeError(e), e.Code),
		e}
}

// describeError says what the server says, except for what may quote a row of a database with
// sensitive columns.
func (c *Connection) describeError(e *pgconn.PgError) string {
	text, detail := e.Message, e.Detail
	if len(c.Sensitive) > 0 {
		if IsCode(e, "22") {
			text = "a value does not fit, and is not shown, because the database has sensitive columns"
		}
		if IsCode(e, "22", "23", "44") {
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

// Error is an error of the server that trying again does not mend.
type Error struct {
	Told *activities.Error // as people are told of it
	said *pgconn.PgError
}

func (e *Error) Error() string { return e.Told.Error() }

// Unwrap returns the error of the contract, and that of the server.
func (e *Error) Unwrap() []error { return []error{e.Told, e.said} }
