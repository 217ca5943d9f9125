package capture

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// ShownRows is how many rows of each table people are shown.
const ShownRows = 20

// Images are a row before and after, as JSON; nil where there is none.
type Images struct{ Old, New *string }

// ShowRows shows rows of the table with this name, which is quoted; a row that no table describes
// is not shown.
func ShowRows(c *server.Connection, name string, rows []string) (string, error) {
	ids, err := server.Collect(c, pgx.RowTo[uint32], "SELECT oid FROM pg_class WHERE oid = to_regclass($1)", name)
	if err != nil {
		return "", err
	}
	all, err := Describe(c, ids)
	if err != nil || len(all) == 0 {
		return activities.CountOf(len(rows), "row"), err
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(ShowRow(c, &all[0].Table, Images{New: &row}))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// ShowRow shows a row: "-" as it was, "+" as it is; of one that is there twice, only its key and
// what differs.
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
	if t.IsMasked(c, column) || slices.Contains(t.Masked, column) {
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
