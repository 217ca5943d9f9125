package statement

import (
	"errors"
	"slices"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// explainLock is how long an explanation waits for a lock.
const explainLock = "2s"

// Explain explains statements in a transaction that is rolled back. A step never fails in a way
// that it would not fail when it runs: EXPLAIN checks names, types and privileges, and executes
// nothing.
func Explain(c *server.Connection, statements []Statement, mode string) error {
	if len(statements) == 0 {
		return nil
	}
	if err := c.Run("BEGIN " + mode + "; SET LOCAL lock_timeout = '" + explainLock + "'"); err != nil {
		return err
	}
	defer c.Rollback()
	for _, s := range statements {
		if _, words := Split(s.SQL); IsAlteration(words[0]) {
			break // the next statements may need what it makes
		}
		if err := explainStatement(c, s); err != nil {
			return judge(c, err) // the transaction is over
		}
	}
	return c.CheckReads()
}

// Parse lets the server parse statements that run in another schema than the present one: only
// their syntax is judged.
func Parse(c *server.Connection, statements []Statement) error {
	for _, s := range statements {
		if _, err := c.PgConn().Prepare(c.Ctx, "", s.SQL, nil); server.IsCode(err, "42601") {
			return explainIn(c, s.Where, err)
		}
	}
	return nil
}

// explained are the statements that EXPLAIN takes. Others are only parsed.
var explained = []string{"select", "insert", "update", "delete", "merge", "with", "values", "table"}

func explainStatement(c *server.Connection, s Statement) error {
	_, words := Split(s.SQL)
	if !slices.Contains(explained, words[0][0]) {
		_, err := c.PgConn().Prepare(c.Ctx, "", s.SQL, nil)
		if err != nil {
			return explainIn(c, s.Where, err)
		}
		return nil
	}
	s.SQL, s.Changes = "EXPLAIN "+s.SQL, nil
	if _, _, _, err := Execute(c, s, 0); err != nil {
		return err
	}
	return nil
}

// mendable are errors that a change of the schema or of privileges can mend: an undefined table,
// column, function or schema, a missing privilege, a column of another type.
var mendable = []string{"42P01", "42703", "42883", "3F000", "42501", "42704", "42804", "42P10"}

// judge says what an error of an explanation means for the step. A missing table is one of the
// current schema, which an earlier step may change. What the planner computed by itself, such as a
// division by zero, may never be computed when the step runs.
func judge(c *server.Connection, err error) error {
	e, isServers := errors.AsType[*server.Error](err)
	switch {
	case !isServers:
	case server.IsCode(e, mendable...):
		e.Told.Current = "postgres:" + c.Name
	case !server.IsCode(e, "42"):
		return nil
	}
	return err
}
