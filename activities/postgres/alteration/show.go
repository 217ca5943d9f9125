package alteration

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Show says what a statement does, and lists rows that go.
func Show(c *server.Connection, b *strings.Builder, a *Alteration) error {
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
		if err := c.Scan("SELECT to_regclass($1)::oid", []any{h.Name}, &id); err != nil {
			return err
		}
		relations, err := capture.Describe(c, []uint32{id})
		if err != nil {
			return err
		}
		t := &capture.Table{Schema: h.schema, Name: h.table, Columns: relations[0].Columns}
		rows, err := server.Collect(c, pgx.RowToStructByPos[capture.Images],
			fmt.Sprintf("SELECT to_jsonb(q.*)::text, NULL::text FROM %s q LIMIT %d", h.Name, capture.ShownRows))
		if err != nil {
			return err
		}
		for _, r := range rows {
			b.WriteString(capture.ShowRow(c, t, r))
		}
		var total int64
		if err := c.Scan("SELECT count(*) FROM "+h.Name, nil, &total); err != nil {
			return err
		}
		if more := total - int64(len(rows)); more > 0 {
			fmt.Fprintf(b, "  ... and %d more\n", more)
		}
	}
	return nil
}
