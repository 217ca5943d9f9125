package statement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// encodeParam writes a parameter the way the server reads a value of its type: a list as an array
// unless the type is JSON.
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
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID,
		pgtype.JSONOID, pgtype.JSONBOID:
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if d.Decode(&v) == nil {
			return v
		}
	}
	return string(raw)
}
