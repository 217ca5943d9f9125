package postgres

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// images are a row before and after, as JSON; nil where there is none.
type images struct{ Old, New *string }

// show lists up to twenty rows of each table, side by side.
func (c *connection) show(n int64, did *change) (string, error) {
	var b strings.Builder
	for _, a := range did.alterations {
		if err := c.showAlteration(&b, a); err != nil {
			return "", err
		}
	}
	for _, n := range did.uncaught {
		fmt.Fprintf(&b, "%s: %d come, %d go, %d change\n", n.Of, n.Added, n.Removed, n.Changed)
	}
	for _, t := range did.tables {
		fmt.Fprintf(&b, "%s: %d come, %d go, %d change\n", t.name(), t.Came, t.Went, t.Changed)
		rows, err := collect(c, pgx.RowToStructByPos[images], fmt.Sprintf(`SELECT to_jsonb(old::%[1]s)::text, to_jsonb(new::%[1]s)::text
			FROM unwind.change WHERE record = $1 AND relid = $2 ORDER BY coalesce(old_key, new_key) COLLATE "C" LIMIT %[2]d`, t.quoted(), shownRows), n, t.OID)
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			b.WriteString(c.showRow(t, r))
		}
		if more := t.Came + t.Went + t.Changed - int64(len(rows)); more > 0 {
			fmt.Fprintf(&b, "  ... and %d more\n", more)
		}
	}
	return b.String(), nil
}

// showAlteration says what a statement does, and lists rows that go.
func (c *connection) showAlteration(b *strings.Builder, a *alteration) error {
	fmt.Fprintf(b, "%s\n", a.Does)
	if d := a.Declared; d != nil {
		for _, line := range d.Goes {
			fmt.Fprintf(b, "- %s\n", line)
		}
		for _, line := range d.Comes {
			fmt.Fprintf(b, "+ %s\n", line)
		}
	}
	for _, h := range a.Held {
		if !h.hasRows() {
			continue
		}
		var id uint32
		if err := c.scan("SELECT to_regclass($1)::oid", []any{h.Name}, &id); err != nil {
			return err
		}
		relations, err := c.describeTables([]uint32{id})
		if err != nil {
			return err
		}
		t := &table{Schema: h.schema, Name: h.table, Columns: relations[0].Columns}
		rows, err := collect(c, pgx.RowToStructByPos[images], fmt.Sprintf("SELECT to_jsonb(q.*)::text, NULL::text FROM %s q LIMIT %d", h.Name, shownRows))
		if err != nil {
			return err
		}
		for _, r := range rows {
			b.WriteString(c.showRow(t, r))
		}
		var total int64
		if err := c.scan("SELECT count(*) FROM "+h.Name, nil, &total); err != nil {
			return err
		}
		if more := total - int64(len(rows)); more > 0 {
			fmt.Fprintf(b, "  ... and %d more\n", more)
		}
	}
	return nil
}

// showRow shows a row: "-" as it was, "+" as it is; of one that is there twice, only its key and what differs.
func (c *connection) showRow(t *table, r images) string {
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
			shown = append(shown, column.Name+"="+c.showValue(t, column.Name, value))
		}
		fmt.Fprintf(&b, "%s %s\n", sign, strings.Join(shown, " "))
	}
	line("-", before, after)
	line("+", after, before)
	return b.String()
}

func (c *connection) showValue(t *table, column string, value json.RawMessage) string {
	if matchesAny(c.Sensitive, t.name()+"."+column) {
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
