// Package statement has the statements of steps: which may run, how they run, and what the server
// says of them before.
package statement

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// Statement is one statement, or several without parameters.
type Statement struct {
	SQL     string `json:"sql"               jsonschema:"the statement"`
	Params  []any  `json:"params,omitempty"  jsonschema:"its parameters $1, $2 ..."`
	Changes *int64 `json:"changes,omitempty" jsonschema:"how many rows it must insert, update or delete itself; with any other number nothing is changed"`

	// Where says where it stands, for errors.
	Where string `json:"-"`
}

// Script is what a step runs, and what takes it back: nil unless the step declares it. With a
// checkpoint, rows come back from a copy.
type Script struct {
	Forward, Undo []Statement
	Checkpoint    bool
}

// List lists single statements, each with the place where it stands.
func List(field string, given []Statement, check func(where string, words []string) error) (all []Statement,
	err error) {
	for i, s := range given {
		if s.Where == "" {
			s.Where = fmt.Sprintf("%s %d", field, i+1)
		}
		texts, words := Split(s.SQL)
		if len(texts) == 0 {
			return nil, activities.Errorf(activities.Refused, "%s: there is no statement in it", s.Where)
		}
		if len(texts) > 1 && (s.Params != nil || s.Changes != nil) {
			return nil, activities.Errorf(activities.Refused, "%s: params and changes belong to one statement; it has %d",
				s.Where, len(texts))
		}
		for n, text := range texts {
			one := Statement{SQL: text, Params: s.Params, Changes: s.Changes, Where: s.Where}
			if len(texts) > 1 {
				one.Where += fmt.Sprintf(", statement %d", n+1)
			}
			if err := check(one.Where, words[n]); err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}
