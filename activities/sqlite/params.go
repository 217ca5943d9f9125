package sqlite

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
)

// The names of the actions.
const (
	execName    = "sqlite.exec"
	queryName   = "sqlite.query"
	keepName    = "sqlite.checkpoint"
	restoreName = "sqlite.restore"
	verifyName  = "sqlite.verify"
	compareName = "sqlite.compare"
)

func actionsOf(w *world) (all []activities.Action) {
	for _, spec := range []activities.Spec{execSpec(), querySpec(), keepSpec(), restoreSpec(), verifySpec(),
		compareSpec()} {
		all = append(all, &action{w, spec})
	}
	return all
}

// keyPrefix gives a database the same key as its file.
const keyPrefix = "file:"

// execParams are the parameters of sqlite.exec.
type execParams struct {
	Database    string      `json:"database"              jsonschema:"the absolute path of the database file, below one of the worker's sqlite.roots"`
	SQL         string      `json:"sql,omitempty"         jsonschema:"one or more statements, separated by semicolons; or give statements"`
	Params      any         `json:"params,omitempty"      jsonschema:"the parameters of sql, which is then one statement: a list for ? and ?1, an object for :name, @name and $name"`
	Statements  []statement `json:"statements,omitempty"  jsonschema:"statements with parameters of their own, in order"`
	ForeignKeys *bool       `json:"foreignKeys,omitempty" jsonschema:"whether foreign keys are enforced, and cascade; defaults to true"`
}

// statement is one statement, or several without parameters.
type statement struct {
	SQL     string `json:"sql"               jsonschema:"the statement"`
	Params  any    `json:"params,omitempty"  jsonschema:"its parameters: a list for ? and ?1, an object for :name, @name and $name"`
	Changes *int64 `json:"changes,omitempty" jsonschema:"how many rows it must insert, update or delete itself; with any other number nothing is changed"`
}

// undoParams are the parameters that the entry of any of the actions keeps.
type undoParams struct {
	Database   string `json:"database"`
	Checkpoint string `json:"checkpoint,omitempty"`
}

// queryParams are the parameters of sqlite.query.
type queryParams struct {
	Database string `json:"database"         jsonschema:"the absolute path of the database file, below one of the worker's sqlite.roots"`
	SQL      string `json:"sql"              jsonschema:"one statement that reads"`
	Params   any    `json:"params,omitempty" jsonschema:"its parameters: a list for ? and ?1, an object for :name, @name and $name"`
	Limit    int    `json:"limit,omitempty"  jsonschema:"the most rows that it may return; more are refused; defaults to 100"`
}

func execSpec() activities.Spec {
	return activities.Spec{
		Name: execName, Summary: "Runs SQL statements on an SQLite database in one transaction.",
		Params: activities.ParamsSchema[execParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"changes": "how many rows the statements inserted, updated or deleted, without those of triggers and foreign keys",
			"rows":    "what the last statement that returns rows (RETURNING, SELECT) returned, as objects",
		},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, Preflights: true, Risk: activities.Medium, Strategy: activities.Transaction,
		Undo: "Every changed row is put back, in one transaction, exactly; a change of the schema by a checkpoint of the " +
			"whole file.",
		Redo: "The statements run again.",
	}
}

func querySpec() activities.Spec {
	return activities.Spec{
		Name: queryName, Summary: "Reads rows of an SQLite database for later steps.",
		Params: activities.ParamsSchema[queryParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"rows": "the rows, as objects", "count": "how many rows there are",
			"value": "the first column of the first row; null if there is none",
		},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, ReadOnly: true, Preflights: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "It changes nothing.",
		Redo: "The query runs again.",
	}
}

// decodeParams is activities.DecodeParams with numbers as they are written: a float64 would round
// the long ones.
func decodeParams[T any](with json.RawMessage) (p T, err error) {
	d := json.NewDecoder(bytes.NewReader(with))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, activities.Errorf(activities.Refused, "parameters: %v", err)
	}
	return p, nil
}

// parseExec reads the parameters of sqlite.exec.
func parseExec(with json.RawMessage) (p execParams, err error) {
	if p, err = decodeParams[execParams](with); err != nil {
		return p, err
	}
	switch {
	case p.SQL != "" && len(p.Statements) > 0:
		return p, activities.Errorf(activities.Refused, "give sql or statements, not both")
	case p.SQL == "" && p.Params != nil:
		return p, activities.Errorf(activities.Refused,
			"params: they belong to sql; each of statements has params of its own")
	case p.SQL != "":
		p.Statements = []statement{{SQL: p.SQL, Params: p.Params}}
	case len(p.Statements) == 0:
		return p, activities.Errorf(activities.Refused, "give sql or statements")
	}
	return p, nil
}

func (p execParams) enforcesKeys() bool { return p.ForeignKeys == nil || *p.ForeignKeys }

// bind sets the parameters of a statement.
func bind(s *sqlite.Stmt, params any) error {
	want := s.BindParamCount()
	refuse := func(format string, args ...any) error {
		return activities.Errorf(activities.Refused, "params: "+format, args...)
	}
	switch params := params.(type) {
	case nil:
		if want > 0 {
			return refuse("the statement has %d and none is given", want)
		}
	case []any:
		if len(params) != want {
			return refuse("the statement has %d and %d are given", want, len(params))
		}
		for i, v := range params {
			if err := bindValue(s, i+1, v); err != nil {
				return refuse("%d: %v", i+1, err)
			}
		}
	case map[string]any:
		used := 0
		for i := 1; i <= want; i++ {
			name := s.BindParamName(i)
			v, given := params[strings.TrimLeft(name, ":@$")]
			if name == "" || !given {
				return refuse("%q is not given", name)
			}
			used++
			if err := bindValue(s, i, v); err != nil {
				return refuse("%s: %v", name, err)
			}
		}
		if used < len(params) {
			return refuse("%d are given and the statement has %d", len(params), used)
		}
	default:
		return refuse("give a list or an object")
	}
	return nil
}

// bindValue sets a value from a task file or from a row.
func bindValue(s *sqlite.Stmt, i int, v any) error {
	switch v := v.(type) {
	case nil:
		s.BindNull(i)
	case bool:
		s.BindBool(i, v)
	case int64:
		s.BindInt64(i, v)
	case float64:
		s.BindFloat(i, v)
	case string:
		s.BindText(i, v)
	case []byte:
		if len(v) == 0 {
			s.BindZeroBlob(i, 0)
		} else {
			s.BindBytes(i, v)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			s.BindInt64(i, n)
			return nil
		}
		f, err := v.Float64()
		if err != nil {
			return err
		}
		s.BindFloat(i, f)
	case map[string]any:
		text, ok := v["base64"].(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if !ok || len(v) != 1 || err != nil {
			return fmt.Errorf("a BLOB is written {base64: TEXT}")
		}
		return bindValue(s, i, raw)
	default:
		return fmt.Errorf("give null, true, false, a number, a text, or {base64: TEXT}")
	}
	return nil
}

// column reads a value of the current row.
func column(s *sqlite.Stmt, i int) any {
	switch s.ColumnType(i) {
	case sqlite.TypeInteger:
		return s.ColumnInt64(i)
	case sqlite.TypeFloat:
		return s.ColumnFloat(i)
	case sqlite.TypeText:
		return s.ColumnText(i)
	case sqlite.TypeBlob:
		raw := make([]byte, s.ColumnLen(i))
		s.ColumnBytes(i, raw)
		return raw
	case sqlite.TypeNull:
	}
	return nil
}

// output is a row for ${{ }}: a BLOB as it is written in params.
func output(s *sqlite.Stmt) (row map[string]any, columns []string) {
	row = map[string]any{}
	for i := range s.ColumnCount() {
		v := column(s, i)
		if raw, is := v.([]byte); is {
			v = map[string]any{"base64": base64.StdEncoding.EncodeToString(raw)}
		}
		row[s.ColumnName(i)] = v
		columns = append(columns, s.ColumnName(i))
	}
	return row, columns
}
