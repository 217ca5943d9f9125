package statement

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Execute runs one statement with the extended protocol, in which the server takes one statement
// only. It returns how many rows the statement changed, the rows that it returned up to a limit,
// and the first value of those.
func Execute(c *server.Connection, s Statement, limit int) (changed int64, rows []map[string]any, first any,
	err error) {
	if err := checkCalls(c, s); err != nil {
		return 0, nil, nil, err
	}
	prepared, err := c.PgConn().Prepare(c.Ctx, "", s.SQL, nil)
	if err != nil {
		return 0, nil, nil, explainIn(c, s.Where, err)
	}
	if len(prepared.ParamOIDs) != len(s.Params) {
		return 0, nil, nil,
			activities.Errorf(activities.Refused, "%s: it has %s, params has %d", s.Where,
				activities.CountOf(len(prepared.ParamOIDs), "parameter"), len(s.Params))
	}
	values := make([][]byte, len(s.Params))
	for i, p := range s.Params {
		if values[i], err = encodeParam(p, prepared.ParamOIDs[i]); err != nil {
			return 0, nil, nil, activities.Errorf(activities.Refused, "%s: params %d: %v", s.Where, i+1, err)
		}
	}
	result := c.PgConn().ExecPrepared(c.Ctx, "", values, nil, nil)
	for result.NextRow() {
		if len(rows) >= limit {
			continue // it has to be read to its end
		}
		row := map[string]any{}
		for i, f := range result.FieldDescriptions() {
			row[f.Name] = decodeValue(slices.Clone(result.Values()[i]), f.DataTypeOID)
			if i == 0 && rows == nil {
				first = row[f.Name]
			}
		}
		rows = append(rows, row)
	}
	tag, err := result.Close()
	if err != nil {
		return 0, nil, nil, explainIn(c, s.Where, err)
	}
	if !tag.Select() {
		changed = tag.RowsAffected()
	}
	if s.Changes != nil && changed != *s.Changes {
		return 0, nil, nil,
			activities.Errorf(activities.ActionDenied, "%s: it changes %s, and must change %d; nothing was changed", s.Where,
				activities.CountOf(changed, "row"), *s.Changes)
	}
	return changed, rows, first, nil
}

func explainIn(c *server.Connection, where string, err error) error {
	err = c.Explain(err)
	if e, ok := errors.AsType[*activities.Error](err); ok {
		e.Message = where + ": " + e.Message
		return err
	}
	return fmt.Errorf("%s: %w", where, err)
}
