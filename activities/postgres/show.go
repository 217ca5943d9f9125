package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// show lists up to twenty rows of each table, side by side.
func (c *connection) show(n int64, did *alteration.Change) (string, error) {
	var b strings.Builder
	for _, a := range did.Alterations {
		if err := alteration.Show(c.Connection, &b, a); err != nil {
			return "", err
		}
	}
	for _, n := range did.Uncaught {
		fmt.Fprintf(&b, "%s: %s\n", n.Of, n.Describe("row"))
	}
	for _, t := range did.Tables {
		fmt.Fprintf(&b, "%s: %s\n", t.FullName(),
			activities.Count{Added: t.Came, Removed: t.Went, Changed: t.Changed}.Describe("row"))
		rows, err := server.Collect(c.Connection, pgx.RowToStructByPos[capture.Images],
			fmt.Sprintf(`SELECT to_jsonb(o)::text, to_jsonb(n)::text
			FROM (SELECT new, old::%[1]s AS o, new::%[1]s AS n FROM unwind.event WHERE record = $1 AND relid = $2 OFFSET 0) e
			ORDER BY %[2]s COLLATE "C" LIMIT %[3]d`,
				t.Quoted(), keyOfEvent(t), capture.ShownRows), n, t.OID)
		if err != nil {
			return "", err
		}
		for _, r := range rows {
			b.WriteString(capture.ShowRow(c.Connection, t, r))
		}
		if more := t.Came + t.Went + t.Changed - int64(len(rows)); more > 0 {
			fmt.Fprintf(&b, "  ... and %d more\n", more)
		}
	}
	return b.String(), nil
}
