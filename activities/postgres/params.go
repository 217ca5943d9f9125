package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-62bf7108/unwind/activities"
)

// execParams are the parameters of postgres.exec.
type execParams struct {
	Database   string      `json:"database"             jsonschema:"the name of one of the worker's postgres.databases"`
	SQL        string      `json:"sql,omitempty"        jsonschema:"one or more statements, separated by semicolons; or give statements"`
	Params     []any       `json:"params,omitempty"     jsonschema:"the parameters $1, $2 ... of sql, which is then one statement"`
	Statements []statement `json:"statements,omitempty" jsonschema:"statements with parameters of their own, in order"`
	Undo       []statement `json:"undo,omitempty"       jsonschema:"the statements that take the whole step back, in order, for one whose inverse is not known; they are tried before the step acts"`
	Checkpoint bool        `json:"checkpoint,omitempty" jsonschema:"with undo: whether the rows of all tables that the step touches are copied before, and put back after the statements of undo; defaults to false"`
}

// script is what a step runs, and what takes it back: nil unless the step declares it. With a checkpoint, rows come back from a copy.
type script struct {
	forward, undo []statement
	checkpoint    bool
}

// statement is one statement, or several without parameters.
type statement struct {
	SQL     string `json:"sql"               jsonschema:"the statement"`
	Params  []any  `json:"params,omitempty"  jsonschema:"its parameters $1, $2 ..."`
	Changes *int64 `json:"changes,omitempty" jsonschema:"how many rows it must insert, update or delete itself; with any other number nothing is changed"`

	where string
}

// undoParams are those of execParams that the entry holds.
type undoParams struct {
	Database string `json:"database"`
}

// checkpointParams are the parameters of postgres.checkpoint, which the entry holds too.
type checkpointParams struct {
	Database  string `json:"database"            jsonschema:"the name of one of the worker's postgres.databases"`
	Exclusive bool   `json:"exclusive,omitempty" jsonschema:"whether nobody but the task writes to the database while the task lives, so that an undo may restore it without asking; defaults to false"`
}

// queryParams are the parameters of postgres.query.
type queryParams struct {
	Database string `json:"database"         jsonschema:"the name of one of the worker's postgres.databases"`
	SQL      string `json:"sql"              jsonschema:"one statement that reads"`
	Params   []any  `json:"params,omitempty" jsonschema:"its parameters $1, $2 ..."`
	Limit    int    `json:"limit,omitempty"  jsonschema:"the most rows that it may return; more are refused; defaults to 100"`
}

const triggersDoNotRun = "Puts the rows back as they were, in one transaction and without running triggers: also those that triggers and cascades " +
	"changed. Tables that were dropped come back from where they were moved, and what was made is dropped. Sequences are not rolled back. " +
	"A step that declares its undo is taken back by those statements, unless others have changed what they touch."

var (
	execSpec = activities.Spec{
		Name: "postgres.exec", Summary: "Changes rows and the schema of a PostgreSQL database by SQL statements in one transaction.",
		Params: activities.ParamsSchema[execParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"changes": "how many rows the statements inserted, updated or deleted, without those of triggers and foreign keys",
			"rows":    "what the last statement returned (RETURNING, SELECT), as objects, at most 100",
			"tables":  "how many rows came, went and changed, by table, with those of triggers and foreign keys",
		},
		Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, Risk: activities.Medium, MayAsk: true, Preflights: true,
		Strategy: activities.Transaction, Undo: triggersDoNotRun,
	}
	checkpointSpec = activities.Spec{
		Name: "postgres.checkpoint", Summary: "Takes a checkpoint of a whole PostgreSQL database, so that whatever later steps do to it can be taken back.",
		Params: activities.ParamsSchema[checkpointParams](), UndoParams: []string{"database", "exclusive"},
		Outputs: map[string]string{"bytes": "the size of the checkpoint", "rows": "how many rows it has", "digest": "what the database contains, as a digest"},
		Keys:    []activities.Key{{Prefix: "postgres:", Param: "database"}}, HostBound: true, Preflights: true, Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "Restores the whole database as it was at the checkpoint, if it has changed since and the step is exclusive or a person forces it; its sessions are ended. " +
			"What is replaced is kept beside it until the record is released.",
		Redo: "Another checkpoint is taken.",
	}
	querySpec = activities.Spec{
		Name: "postgres.query", Summary: "Reads rows of a PostgreSQL database in a read-only transaction.",
		Params: activities.ParamsSchema[queryParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"rows": "the rows, as objects", "count": "how many rows there are", "value": "the first column of the first row; null if there is none",
		},
		Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, ReadOnly: true, Preflights: true, Risk: activities.Low,
		Strategy: activities.NoUndo, Undo: "It changes nothing.", Redo: "The query runs again.",
	}
)

// script returns the statements to run, each with the place where it stands, and refuses those that cannot be undone.
func (p execParams) script() (script, error) {
	given := p.Statements
	switch {
	case p.SQL != "" && given != nil:
		return script{}, activities.Errorf(activities.Refused, "sql, statements: give one of the two")
	case p.SQL == "" && p.Params != nil:
		return script{}, activities.Errorf(activities.Refused, "params: they belong to sql; give each of statements its own params")
	case p.SQL != "":
		given = []statement{{SQL: p.SQL, Params: p.Params, where: "sql"}}
	}
	check := checkStatement
	if p.Undo != nil {
		check = checkDeclared
	}
	forward, err := listStatements("statements", given, check)
	switch {
	case err != nil:
		return script{}, err
	case len(forward) == 0:
		return script{}, activities.Errorf(activities.Refused, "sql: give the statements to run")
	}
	undo, err := listStatements("undo", p.Undo, checkDeclared)
	if err == nil && p.Undo != nil && len(undo) == 0 {
		err = activities.Errorf(activities.Refused, "undo: give the statements that take the step back, or leave it out")
	}
	if p.Checkpoint && p.Undo == nil {
		err = activities.Errorf(activities.Refused, "checkpoint: it belongs to undo; without that, a step is undone row by row")
	}
	return script{forward, undo, p.Checkpoint}, err
}

// listStatements lists single statements, each with the place where it stands.
func listStatements(field string, given []statement, check func(where string, words []string) error) (all []statement, err error) {
	for i, s := range given {
		if s.where == "" {
			s.where = fmt.Sprintf("%s %d", field, i+1)
		}
		texts, words := splitStatements(s.SQL)
		if len(texts) == 0 {
			return nil, activities.Errorf(activities.Refused, "%s: there is no statement in it", s.where)
		}
		if len(texts) > 1 && (s.Params != nil || s.Changes != nil) {
			return nil, activities.Errorf(activities.Refused, "%s: params and changes belong to one statement; it has %d", s.where, len(texts))
		}
		for n, text := range texts {
			one := statement{SQL: text, Params: s.Params, Changes: s.Changes, where: s.where}
			if len(texts) > 1 {
				one.where += fmt.Sprintf(", statement %d", n+1)
			}
			if err := check(one.where, words[n]); err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
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

// encodeParam writes a parameter the way the server reads a value of its type: a list as an array unless the type is JSON.
func encodeParam(v any, oid uint32) ([]byte, error) {
	if oid == pgtype.JSONOID || oid == pgtype.JSONBOID {
		if text, ok := v.(string); ok && json.Valid([]byte(text)) {
			return []byte(text), nil // it was written as JSON
		}
		if v == nil {
			return nil, nil
		}
		return json.Marshal(v)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(v), nil
	case bool, json.Number:
		return fmt.Append(nil, v), nil
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			text, err := encodeParam(item, 0)
			if err != nil {
				return nil, err
			}
			switch item.(type) {
			case nil:
				items[i] = "NULL"
			case []any:
				items[i] = string(text)
			default:
				items[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(string(text)) + `"`
			}
		}
		return []byte("{" + strings.Join(items, ",") + "}"), nil
	}
	return json.Marshal(v)
}

// decodeValue is a value as JSON has it: numbers, booleans and JSON as such, all else as text.
func decodeValue(raw []byte, oid uint32) any {
	if raw == nil {
		return nil
	}
	switch oid {
	case pgtype.BoolOID:
		return string(raw) == "t"
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID, pgtype.JSONOID, pgtype.JSONBOID:
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) == nil {
			return v
		}
	}
	return string(raw)
}
