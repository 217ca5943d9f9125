package statement

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Scene shows checks the outputs of the step, and its database: staged, in its transaction before
// the commit; live, after it.
type Scene struct {
	Connection *server.Connection
	Result     activities.Result
}

// Target implements activities.Scene.
func (s Scene) Target() string { return s.Connection.Name }

// ReadFile implements activities.Scene.
func (s Scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.Target() {
		return nil, activities.Errorf(activities.Refused,
			"file %s: a check of a step on PostgreSQL sees only the outputs of the step, as the file %s; write a query "+
				"check for all else", name, s.Target())
	}
	return json.Marshal(s.Result.Outputs)
}

// Run implements activities.Scene.
func (s Scene) Run(context.Context, []string) ([]byte, error) {
	return nil, errors.New("no command can run in PostgreSQL; use a query check, or a step of another world")
}

// Query reads in a transaction of its own, or in a savepoint of the step's, in which the server
// refuses to write.
func (s Scene) Query(_ context.Context, sql string) (value any, err error) {
	one, err := readCheck(sql)
	if err != nil {
		return nil, err
	}
	c := s.Connection
	begin, end := "BEGIN READ ONLY", "ROLLBACK"
	if c.PgConn().TxStatus() == 'T' {
		begin, end = "SAVEPOINT checks; SET LOCAL transaction_read_only = on", "ROLLBACK TO checks; RELEASE checks"
	}
	if err := c.Run(begin); err != nil {
		return nil, err
	}
	_, rows, first, err := Execute(c, one, 2)
	if err == nil {
		err = c.CheckReads()
	}
	if err != nil {
		return nil, err // of the transaction, nothing is left
	}
	isSensitive, err := c.UsesSensitive()
	if err != nil {
		return nil, err
	}
	if err := c.Run(end); err != nil {
		return nil, err
	}
	value, err = activities.OnlyValue(rows, first)
	if err == nil && isSensitive {
		value = activities.Sensitive{Value: value}
	}
	return value, err
}

// readCheck reads the statement of a query check.
func readCheck(sql string) (Statement, error) {
	texts, words := Split(sql)
	if len(texts) != 1 || IsAlteration(words[0]) {
		return Statement{}, activities.Errorf(activities.Refused, "query: give one statement that reads")
	}
	return Statement{SQL: texts[0], Where: "query"}, Check("query", words[0])
}
