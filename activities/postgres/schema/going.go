package schema

import (
	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// listGoing lists what goes when objects are dropped without CASCADE, with them: the server drops
// whatever depends on them in another way than a normal one. The triggers of Unwind and TOAST tables
// are nobody's work.
const listGoing = `WITH RECURSIVE going(class, id, part) AS (
		SELECT CASE WHEN part > 0 THEN 'pg_class'::regclass::oid ELSE class END, id, part
			FROM unnest($1::oid[], $2::oid[], $3::int[]) thing(class, id, part)
		UNION SELECT d.classid, d.objid, d.objsubid FROM going
			JOIN pg_depend d ON d.refclassid = class AND d.refobjid = id AND (part = 0 OR d.refobjsubid = part)
			WHERE d.deptype <> 'n'
				AND NOT (d.classid = 'pg_trigger'::regclass
					AND EXISTS (SELECT FROM pg_trigger t WHERE t.oid = d.objid AND t.` + server.IsTrigger + `))
				AND NOT (d.classid = 'pg_class'::regclass
					AND EXISTS (SELECT FROM pg_class WHERE oid = d.objid AND relnamespace = 'pg_toast'::regnamespace)))
	SELECT id, part, what FROM going, pg_describe_object(class, id, part) what
	WHERE what IS NOT NULL ORDER BY what COLLATE "C"`

// DescribeGoing describes objects, and all that would go with them, in lines: first what there is,
// then how it is.
func DescribeGoing(c *server.Connection, things []ID) (lines []string, err error) {
	var classes, ids []uint32
	var parts []int32
	for _, thing := range things {
		classes, ids, parts = append(classes, thing.Class), append(ids, thing.OID), append(parts, thing.Sub)
	}
	err = WithPlainNames(c, func() error {
		rows, err := c.Query(c.Ctx, listGoing, classes, ids, parts)
		if err != nil {
			return c.Explain(err)
		}
		ids, parts = []uint32{}, []int32{}
		var id uint32
		var part int32
		var what string
		if _, err := pgx.ForEachRow(rows, []any{&id, &part, &what}, func() error {
			ids, parts, lines = append(ids, id), append(parts, part), append(lines, oneLine.Replace(what))
			return nil
		}); err != nil {
			return c.Explain(err)
		}
		described, err := describe(c, ids, parts)
		lines = append(lines, described...)
		return err
	})
	return lines, err
}
