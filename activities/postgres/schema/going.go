package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Thing is an object by its name: one that is dropped and made again is the same.
type Thing struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Table string `json:"table,omitempty"` // of a column or constraint
}

// ThingsOf names objects as they are called now; those that are gone are left out.
func ThingsOf(c *server.Connection, objects []Object) (things []Thing, err error) {
	if objects == nil {
		return nil, nil
	}
	var ids []uint32
	wanted := map[objectKey]bool{}
	for _, o := range objects {
		ids, wanted[o.key()] = append(ids, o.OID), true
	}
	now, err := ObjectsOf(c, ids)
	for _, o := range now {
		if !wanted[o.key()] {
			continue
		}
		if !strings.Contains(listGoing, "'"+o.Kind+"'") {
			return nil, fmt.Errorf("what goes with %s %s cannot be listed", o.Kind, o.Name)
		}
		things = append(things, Thing{Kind: o.Kind, Name: o.Name, Table: o.Table})
	}
	return things, err
}

// listGoing lists what goes when things are dropped without CASCADE, with them: the server drops
// whatever depends on them in another way than a normal one. The triggers of Unwind, those that the
// server makes for a constraint, and TOAST tables are nobody's work.
const listGoing = `WITH RECURSIVE going(class, id, part) AS (
		SELECT found.class, found.id, found.part
		FROM unnest($1::text[], $2::text[], $3::text[]) thing(kind, name, of), LATERAL (
			SELECT 'pg_class'::regclass::oid, to_regclass(name)::oid, 0
				WHERE kind IN ('TABLE', 'VIEW', 'MATERIALIZED VIEW', 'SEQUENCE', 'INDEX')
			UNION ALL SELECT 'pg_proc'::regclass, to_regprocedure(name), 0 WHERE kind = 'ROUTINE'
			UNION ALL SELECT 'pg_type'::regclass, oid, 0 FROM pg_type -- to_regtype takes no shell type
				WHERE kind IN ('TYPE', 'DOMAIN') AND oid >= 16384 AND oid::regtype::text = name
			UNION ALL SELECT 'pg_namespace'::regclass, oid, 0 FROM pg_namespace
				WHERE kind = 'SCHEMA' AND quote_ident(nspname) = name
			UNION ALL SELECT 'pg_constraint'::regclass, oid, 0 FROM pg_constraint
				WHERE kind IN ('CONSTRAINT', 'FOREIGN KEY') AND conrelid = to_regclass(of) AND quote_ident(conname) = name
			UNION ALL SELECT 'pg_class'::regclass, attrelid, attnum FROM pg_attribute
				WHERE kind = 'COLUMN' AND attrelid = to_regclass(of) AND quote_ident(attname) = name AND NOT attisdropped
			) found(class, id, part) WHERE id IS NOT NULL
		UNION SELECT d.classid, d.objid, d.objsubid FROM going
			JOIN pg_depend d ON d.refclassid = class AND d.refobjid = id AND (part = 0 OR d.refobjsubid = part)
			WHERE d.deptype <> 'n'
				AND NOT (d.classid = 'pg_trigger'::regclass AND EXISTS (SELECT FROM pg_trigger t
					WHERE t.oid = d.objid AND (t.tgisinternal OR t.` + server.IsTrigger + `)))
				AND NOT (d.classid = 'pg_class'::regclass
					AND EXISTS (SELECT FROM pg_class WHERE oid = d.objid AND relnamespace = 'pg_toast'::regnamespace)))
	SELECT id, part, what FROM going, pg_describe_object(class, id, part) what
	WHERE what IS NOT NULL ORDER BY what COLLATE "C"`

// DescribeGoing describes things, and all that would go with them, in lines: first what there is,
// then how it is.
func DescribeGoing(c *server.Connection, things []Thing) (lines []string, err error) {
	var kinds, names, tables []string
	for _, thing := range things {
		kinds, names, tables = append(kinds, thing.Kind), append(names, thing.Name), append(tables, thing.Table)
	}
	err = WithPlainNames(c, func() error {
		rows, err := c.Query(c.Ctx, listGoing, kinds, names, tables)
		if err != nil {
			return c.Explain(err)
		}
		ids, parts := []uint32{}, []int32{}
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
		lines = slices.Concat(lines, described)
		return err
	})
	return lines, err
}
