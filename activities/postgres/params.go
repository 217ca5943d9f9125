package postgres

import (
	"bytes"
	"encoding/json"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// execParams are the parameters of postgres.exec.
type execParams struct {
	Database   string                `json:"database"             jsonschema:"the name of one of the worker's postgres.databases"`
	SQL        string                `json:"sql,omitempty"        jsonschema:"one or more statements, separated by semicolons; or give statements"`
	Params     []any                 `json:"params,omitempty"     jsonschema:"the parameters $1, $2 ... of sql, which is then one statement"`
	Statements []statement.Statement `json:"statements,omitempty" jsonschema:"statements with parameters of their own, in order"`
	Undo       []statement.Statement `json:"undo,omitempty"       jsonschema:"the statements that take the whole step back, in order, for one whose inverse is not known; they are tried before the step acts"`
	Checkpoint bool                  `json:"checkpoint,omitempty" jsonschema:"with undo: whether the rows of all tables that the step touches are copied before, and put back after the statements of undo; defaults to false"`
}

// undoParams are those of execParams that the entry holds.
type undoParams struct {
	Database string `json:"database"`
}

// queryParams are the parameters of postgres.query.
type queryParams struct {
	Database string `json:"database"         jsonschema:"the name of one of the worker's postgres.databases"`
	SQL      string `json:"sql"              jsonschema:"one statement that reads"`
	Params   []any  `json:"params,omitempty" jsonschema:"its parameters $1, $2 ..."`
	Limit    int    `json:"limit,omitempty"  jsonschema:"the most rows that it may return; more are refused; defaults to 100"`
}

const triggersDoNotRun = "Puts the rows back as they were, in one transaction and without running triggers: also " +
	"those that triggers and cascades " +
	"changed. Tables that were dropped come back from where they were moved, and what was made is dropped. Sequences " +
	"are not rolled back. " +
	"A step that declares its undo is taken back by those statements, unless others have changed what they touch."

var (
	execSpec = activities.Spec{
		Name:    "postgres.exec",
		Summary: "Changes rows and the schema of a PostgreSQL database by SQL statements in one transaction.",
		Params:  activities.ParamsSchema[execParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"changes": "how many rows the statements inserted, updated or deleted, without those of triggers and foreign keys",
			"rows":    "what the last statement returned (RETURNING, SELECT), as objects, at most 100",
			"tables":  "how many rows came, went and changed, by table, with those of triggers and foreign keys",
		},
		Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, Risk: activities.Medium, Preflights: true,
		Strategy: activities.Transaction, Undo: triggersDoNotRun,
	}
	querySpec = activities.Spec{
		Name: "postgres.query", Summary: "Reads rows of a PostgreSQL database in a read-only transaction.",
		Params: activities.ParamsSchema[queryParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"rows": "the rows, as objects", "count": "how many rows there are",
			"value": "the first column of the first row; null if there is none",
		},
		Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, ReadOnly: true, Preflights: true,
		Risk:     activities.Low,
		Strategy: activities.NoUndo, Undo: "It changes nothing.", Redo: "The query runs again.",
	}
)

// script returns the statements to run, each with the place where it stands, and refuses those that
// cannot be undone.
func (p execParams) script() (statement.Script, error) {
	given := p.Statements
	switch {
	case p.SQL != "" && given != nil:
		return statement.Script{}, activities.Errorf(activities.Refused, "sql, statements: give one of the two")
	case p.SQL == "" && p.Params != nil:
		return statement.Script{}, activities.Errorf(activities.Refused,
			"params: they belong to sql; give each of statements its own params")
	case p.SQL != "":
		given = []statement.Statement{{SQL: p.SQL, Params: p.Params, Where: "sql"}}
	}
	check := statement.Check
	if p.Undo != nil {
		check = statement.CheckDeclared
	}
	forward, err := statement.List("statements", given, check)
	switch {
	case err != nil:
		return statement.Script{}, err
	case len(forward) == 0:
		return statement.Script{}, activities.Errorf(activities.Refused, "sql: give the statements to run")
	}
	undo, err := statement.List("undo", p.Undo, statement.CheckDeclared)
	if err == nil && p.Undo != nil && len(undo) == 0 {
		err = activities.Errorf(activities.Refused, "undo: give the statements that take the step back, or leave it out")
	}
	if p.Checkpoint && p.Undo == nil {
		err = activities.Errorf(activities.Refused,
			"checkpoint: it belongs to undo; without that, a step is undone row by row")
	}
	return statement.Script{Forward: forward, Undo: undo, Checkpoint: p.Checkpoint}, err
}

// decode reads the parameters with numbers as they are written.
func decode[T any](raw json.RawMessage) (T, error) {
	if _, err := activities.DecodeParams[T](raw); err != nil {
		var none T
		return none, err
	}
	var v T
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v)
}
