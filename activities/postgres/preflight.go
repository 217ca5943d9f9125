package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

const preflightName = "unwind preflight"

// Preflight connects, and lets the server explain each statement without running it: that finds a server that cannot be used, a syntax
// error, a table that is not there and a privilege that is missing.
func (a *execAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := decode[execParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	var run script
	if !o.AwaitsAny() {
		run, err = p.script()
		problems = append(problems, err)
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database, func(c *connection) error {
		return errors.Join(c.checkReplication(), c.checkCreate(), c.explainAll(run.forward, "READ WRITE"), c.parseAll(run.undo))
	}))...)
}

// Preflight does the same for a query.
func (a *queryAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := decode[queryParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	var statements []statement
	if !o.AwaitsAny() {
		var one statement
		_, one, err = readQuery(o.Step)
		problems = append(problems, err)
		if err == nil {
			statements = []statement{one}
		}
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database, func(c *connection) error { return c.explainAll(statements, "READ ONLY") }))...)
}

func (w *world) preflight(ctx context.Context, database string, look func(*connection) error) error {
	c, err := w.connect(ctx, database, preflightName)
	if err != nil {
		return err
	}
	defer c.close()
	return look(c)
}

// checkCreate refuses where the journal is not there and cannot be made.
func (c *connection) checkCreate() error {
	var able bool
	if err := c.scan("SELECT to_regclass('unwind.change') IS NOT NULL OR has_database_privilege(current_database(), 'CREATE')", nil, &able); err != nil || able {
		return err
	}
	return refused("database %s: the schema unwind, in which undo records are kept, is not there, and the worker's role may not make it; grant CREATE on the database to the role", c.name)
}

// explainAll explains statements in a transaction that is rolled back. A step never fails in a way that it would not fail when it runs:
// EXPLAIN checks names, types and privileges, and executes nothing.
func (c *connection) explainAll(statements []statement, mode string) error {
	if len(statements) == 0 {
		return nil
	}
	if err := c.run("BEGIN " + mode + "; SET LOCAL lock_timeout = '" + prepareLock + "'"); err != nil {
		return err
	}
	defer c.rollback()
	for _, s := range statements {
		if _, words := splitStatements(s.SQL); isAlteration(words[0]) {
			break // the next statements may need what it makes
		}
		if err := c.explainStatement(s); err != nil {
			return c.judge(err) // the transaction is over
		}
	}
	return c.checkReads()
}

// parseAll lets the server parse statements that run in another schema than the present one: only their syntax is judged.
func (c *connection) parseAll(statements []statement) error {
	for _, s := range statements {
		if _, err := c.PgConn().Prepare(c.ctx, "", s.SQL, nil); isCode(err, "42601") {
			return c.explainIn(s.where, err)
		}
	}
	return nil
}

// explained are the statements that EXPLAIN takes. Others are only parsed.
var explained = []string{"select", "insert", "update", "delete", "merge", "with", "values", "table"}

func (c *connection) explainStatement(s statement) error {
	_, words := splitStatements(s.SQL)
	if !slices.Contains(explained, words[0][0]) {
		_, err := c.PgConn().Prepare(c.ctx, "", s.SQL, nil)
		if err != nil {
			return c.explainIn(s.where, err)
		}
		return nil
	}
	s.SQL, s.Changes = "EXPLAIN "+s.SQL, nil
	if _, _, _, err := c.execute(s, 0); err != nil {
		return err
	}
	return nil
}

// mendable are errors that a change of the schema or of privileges can mend: an undefined table, column, function or schema, a missing
// privilege, a column of another type.
var mendable = []string{"42P01", "42703", "42883", "3F000", "42501", "42704", "42804", "42P10"}

// judge says what an error of an explanation means for the step. A missing table is one of the current schema, which an earlier step may
// change. What the planner computed by itself, such as a division by zero, may never be computed when the step runs.
func (c *connection) judge(err error) error {
	e, isServers := errors.AsType[*serverError](err)
	switch {
	case !isServers:
	case isCode(e, mendable...):
		e.told.Current = "postgres:" + c.name
	case !isCode(e, "42"):
		return nil
	}
	return err
}
