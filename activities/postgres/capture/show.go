package capture

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// ShownRows is how many rows of each table people are shown.
const ShownRows = 20

// Images are a row before and after, as JSON; nil where there is none.
type Images struct{ Old, New *string }

// ShowRow shows a row: "-" as it was, "+" as it is; of one that is there twice, only its key and what differs.
func ShowRow(c *server.Connection, t *Table, r Images) string {
	before, after := parseRow(r.Old), parseRow(r.New)
	var b strings.Builder
	line := func(sign string, row, other map[string]json.RawMessage) {
		if row == nil {
			return
		}
		var shown []string
		for _, column := range t.Columns {
			value, found := row[column.Name]
			if !found || other != nil && !slices.Contains(t.Key, column.Name) && string(value) == string(other[column.Name]) {
				continue
			}
			shown = append(shown, column.Name+"="+showValue(c, t, column.Name, value))
		}
		fmt.Fprintf(&b, "%s %s\n", sign, strings.Join(shown, " "))
	}
	line("-", before, after)
	line("+", after, before)
	return b.String()
}

func showValue(c *server.Connection, t *Table, column string, value json.RawMessage) string {
	if c.IsSensitive(t.FullName() + "." + column) {
		return "***"
	}
	const longest = 200
	if text := string(value); len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return string(value)
}

func parseRow(text *string) map[string]json.RawMessage {
	if text == nil {
		return nil
	}
	row := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(*text), &row); err != nil {
		return nil
	}
	return maps.Clone(row)
}
