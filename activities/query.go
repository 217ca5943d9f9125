package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
)

// QueryCheck requires that a query of the step's database returns a certain value: that of the only
// column of the only row, or null if there is no row.
type QueryCheck struct {
	SQL    string          `json:"sql"`
	Expect json.RawMessage `json:"expect"`
}

// Querier is a [Scene] of a database.
type Querier interface {
	// Query returns the value that a statement reads; it is Sensitive if nobody may be shown it. The
	// database refuses to be changed by it.
	Query(ctx context.Context, sql string) (any, error)
}

// Sensitive is a value that is compared, and never shown.
type Sensitive struct{ Value any }

func (c QueryCheck) compareValue(ctx context.Context, scene Scene) error {
	database, ok := scene.(Querier)
	if !ok {
		return Errorf(Refused, "query: this step has no database to query; write command, json or exists")
	}
	got, err := database.Query(ctx, c.SQL)
	if err != nil {
		return err
	}
	sensitive, isSensitive := got.(Sensitive)
	if isSensitive {
		got = sensitive.Value
	}
	is, err := json.Marshal(got)
	if err != nil {
		return err
	}
	var left, right any
	if err := json.Unmarshal(c.Expect, &right); err != nil {
		return Errorf(Refused, "expect: %v", err)
	}
	if err := json.Unmarshal(is, &left); err != nil {
		return err
	}
	if !reflect.DeepEqual(left, right) {
		shown := Tail(MaskerFrom(ctx).String(string(is)), 200)
		if isSensitive {
			shown = Mask
		}
		return Errorf(CheckFailed, "%s: it is %s, want %s", c.SQL, shown, bytes.TrimSpace(c.Expect))
	}
	return nil
}

// OnlyValue returns the value that rows hold, as a query check needs it: those of one column, and
// one at most.
func OnlyValue(rows []map[string]any, first any) (any, error) {
	if len(rows) > 1 || len(rows) == 1 && len(rows[0]) != 1 {
		return nil, Errorf(Refused,
			"query: it must return one row of one column; write it as SELECT count(*) ... or SELECT EXISTS (...)")
	}
	return first, nil
}
