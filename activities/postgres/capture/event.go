package capture

import (
	"fmt"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Batch is how many rows are kept together in a row of unwind.change: an array of all that a
// statement changes might be too large for the server.
const Batch = 100

// PassVersions notes which versions rows have that are again as steps have left them. The query
// rows returns their texts and versions, and of is the condition for the records r and their
// changes c. Undos of two steps may have to note something beside each other in one row of
// unwind.change.
func PassVersions(c *server.Connection, rows, of string, args ...any) error {
	from := fmt.Sprintf(`FROM unwind.record r JOIN unwind.change c ON c.record = r.n CROSS JOIN
		LATERAL unnest(c.new, c.version) WITH ORDINALITY e(new, version, place)
		LEFT JOIN (%s) q(new, version) ON q.new = e.new WHERE %s`, rows, of)
	var matching int64
	if err := c.Scan(
		fmt.Sprintf(`SELECT count(*) FROM (SELECT FROM unwind.change WHERE (record, n) IN (SELECT c.record, c.n %s
			AND q.new IS NOT NULL) ORDER BY n FOR UPDATE) s`, from),
		args, &matching); err != nil || matching == 0 {
		return err
	}
	return c.Run(fmt.Sprintf(`UPDATE unwind.change t SET version = s.version FROM (
		SELECT c.record, c.n, array_agg(coalesce(q.version, e.version, c.xmin) ORDER BY e.place) AS version %s
		GROUP BY c.record, c.n HAVING count(q.new) > 0) s
		WHERE t.record = s.record AND t.n = s.n`, from), args...)
}
