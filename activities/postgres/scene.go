package postgres

import (
	"context"
	"encoding/json"
	"errors"

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
	if err := s.run(end); err != nil {
		return nil, err
	}
	return activities.OnlyValue(rows, first)
}

// readCheck reads the statement of a query check.
func readCheck(sql string) (statement, error) {
	texts, words := splitStatements(sql)
	if len(texts) != 1 || isAlteration(words[0]) {
		return statement{}, refused("query: give one statement that reads")
	}
	return statement{SQL: texts[0], where: "query"}, checkStatement("query", words[0])
}
