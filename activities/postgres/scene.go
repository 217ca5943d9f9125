package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// scene shows checks the outputs of the step, and its database: staged, in its transaction before the commit; live, after it.
type scene struct {
	*connection

	result activities.Result
}

func (s scene) Target() string { return s.name }

func (s scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.name {
		return nil, refused("file %s: a check of a step on PostgreSQL sees only the outputs of the step, as the file %s; write a query check for all else", name, s.name)
	}
	return json.Marshal(s.result.Outputs)
}

func (s scene) Run(context.Context, []string) ([]byte, error) {
	return nil, errors.New("no command can run in PostgreSQL; use a query check, or a step of another world")
}

// Query reads in a transaction of its own, or in a savepoint of the step's, in which the server refuses to write.
func (s scene) Query(_ context.Context, sql string) (value any, err error) {
	one, err := readCheck(sql)
	if err != nil {
		return nil, err
	}
	begin, end := "BEGIN READ ONLY", "ROLLBACK"
	if s.PgConn().TxStatus() == 'T' {
		begin, end = "SAVEPOINT checks; SET LOCAL transaction_read_only = on", "ROLLBACK TO checks; RELEASE checks"
	}
	if err := s.run(begin); err != nil {
		return nil, err
	}
	_, rows, first, err := s.execute(one, 2)
	if err == nil {
		err = s.checkReads()
	}
	if err != nil {
		return nil, err // of the transaction, nothing is left
	}
	isSensitive, err := s.usesSensitive()
	if err != nil {
		return nil, err
	}
	if err := s.run(end); err != nil {
		return nil, err
	}
	value, err = activities.OnlyValue(rows, first)
	if err == nil && isSensitive {
		value = activities.Sensitive{Value: value}
	}
	return value, err
}

// usesSensitive reports whether a table that the transaction uses has a sensitive column. Which columns a value comes from is not
// known: it may be computed from them.
func (c *connection) usesSensitive() (bool, error) {
	if len(c.Sensitive) == 0 {
		return false, nil
	}
	used, err := collect(c, pgx.RowTo[string], `SELECT DISTINCT n.nspname || '.' || c.relname || '.' || a.attname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
		WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')`)
	return slices.ContainsFunc(used, func(column string) bool { return matchesAny(c.Sensitive, column) }), err
}

// readCheck reads the statement of a query check.
func readCheck(sql string) (statement, error) {
	texts, words := splitStatements(sql)
	if len(texts) != 1 || isAlteration(words[0]) {
		return statement{}, refused("query: give one statement that reads")
	}
	return statement{SQL: texts[0], where: "query"}, checkStatement("query", words[0])
}
