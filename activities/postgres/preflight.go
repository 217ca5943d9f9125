package postgres

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// Preflight connects, and lets the server explain each statement without running it: that finds a
// server that cannot be used, a syntax error, a table that is not there and a privilege that is
// missing.
func (a *execAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := decode[execParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	var run statement.Script
	if !o.AwaitsAny() {
		run, err = p.script()
		problems = append(problems, err)
	}
	return errors.Join(append(problems,
		a.Databases.With(ctx, p.Database, server.PreflightName, func(to *server.Connection) error {
			c := connection{to}
			return errors.Join(c.checkReplication(), c.checkCreate(), statement.Explain(to, run.Forward, "READ WRITE"),
				statement.Parse(to, run.Undo))
		}))...)
}

// Preflight does the same for a query.
func (a *queryAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := decode[queryParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	var statements []statement.Statement
	if !o.AwaitsAny() {
		var one statement.Statement
		_, one, err = readQuery(o.Step)
		problems = append(problems, err)
		if err == nil {
			statements = []statement.Statement{one}
		}
	}
	return errors.Join(append(problems,
		a.Databases.With(ctx, p.Database, server.PreflightName, func(to *server.Connection) error {
			return statement.Explain(to, statements, "READ ONLY")
		}))...)
}

// checkCreate refuses where the journal is not there and cannot be made.
func (c *connection) checkCreate() error {
	var able bool
	if err := c.Scan(
		"SELECT to_regclass('unwind.change') IS NOT NULL OR has_database_privilege(current_database(), 'CREATE')", nil,
		&able); err != nil || able {
		return err
	}
	return refused(
		"database %s: the schema unwind, in which undo records are kept, is not there, and the worker's role may not "+
			"make it; grant CREATE on the database to the role", c.Name)
}
