package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Kept are rows of a table that an undo puts back.
type Kept struct {
	Of *Table
	// From is what holds them, Row a row of that as the table has it, and Where which of them, with
	// parameters. One is the condition for one of them, as text.
	From, Row, Where, One string
	Params                []any
}

// plainNodes are the nodes of an expression that only look at their own operands.
const plainNodes = `{CONST,VAR,FUNCEXPR,OPEXPR,DISTINCTEXPR,NULLIFEXPR,SCALARARRAYOPEXPR,BOOLEXPR,RELABELTYPE,
	ARRAYCOERCEEXPR,COLLATEEXPR,NULLTEST,BOOLEANTEST,CASE,CASEEXPR,
	WHEN,CASEWHEN,CASETESTEXPR,COALESCE,COALESCEEXPR,ARRAY,ARRAYEXPR,ROW,ROWEXPR,FIELDSELECT}`

// FindConditional lists those of tables, and domains of their columns, whose CHECKs may forbid a
// row that is there: one that was never validated, or that is not plain, or calls what is not
// immutable or not the server's own, which may read other rows.
func FindConditional(c *server.Connection, tables []uint32) ([]string, error) {
	if tables == nil {
		return nil, nil
	}
	return server.Collect(c, pgx.RowTo[string], `WITH RECURSIVE held(relid, type) AS (
			SELECT attrelid, atttypid FROM pg_attribute WHERE attrelid = ANY($1::oid[]) AND attnum > 0 AND NOT attisdropped
			UNION SELECT relid, part FROM held JOIN pg_type t ON t.oid = type, LATERAL (
				SELECT typbasetype UNION SELECT typelem UNION SELECT atttypid FROM pg_attribute WHERE attrelid = typrelid
				AND attnum > 0 AND NOT attisdropped) parts(part) WHERE part <> 0)
		SELECT DISTINCT coalesce(relid, conrelid)::regclass::text FROM pg_constraint LEFT JOIN held ON type = contypid
		WHERE contype = 'c' AND (relid IS NOT NULL OR conrelid = ANY($1::oid[])) AND (NOT convalidated
			OR EXISTS (SELECT FROM regexp_matches(conbin::text, '\{([A-Z]+)\M', 'g') m WHERE m[1] <> ALL ($2::text[]))
			OR EXISTS (SELECT FROM regexp_matches(conbin::text, ':(?:op)?funcid (\d+)', 'g') m
			JOIN pg_proc p ON p.oid = m[1]::oid WHERE p.provolatile <> 'i' OR p.oid >= $3)) ORDER BY 1`,
		tables, strings.Join(strings.Fields(plainNodes), ""), server.FirstNormalObject)
}

// PutBack inserts rows into all of their tables. A CHECK may call a function that reads other rows,
// which have to be there before, and no catalog tells which: tables that fail are tried again after
// the others, and then their rows one by one, until no more of them succeed.
func PutBack(c *server.Connection, all []Kept) error {
	left, _, err := inAnyOrder(c, all, func(k Kept) error { return k.insert(c, "") })
	if err != nil || left == nil {
		return err
	}
	type row struct {
		Kept
		one string
	}
	var rows []row
	for _, k := range left {
		ones, err := server.Collect(c, pgx.RowTo[string], fmt.Sprintf("SELECT %s FROM %s WHERE %s", k.One, k.From, k.Where),
			k.Params...)
		if err != nil {
			return err
		}
		for _, one := range ones {
			rows = append(rows, row{k, one})
		}
	}
	_, why, err := inAnyOrder(c, rows, func(r row) error { return r.insert(c, r.one) })
	return errors.Join(err, why)
}

// insert inserts all rows, or one.
func (k Kept) insert(c *server.Connection, one string) error {
	var names, values []string
	for _, column := range k.Of.Columns {
		if !column.Generated {
			names = append(names, server.Quote(column.Name))
			values = append(values, "(e.o)."+server.Quote(column.Name))
		}
	}
	where := k.Where
	if one != "" {
		where += " AND " + one
	}
	err := c.Run(
		fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM (SELECT %s AS o FROM %s WHERE %s OFFSET 0) e",
			k.Of.Quoted(), strings.Join(names, ", "), strings.Join(values, ", "), k.Row, k.From, where), k.Params...)
	if e, ok := errors.AsType[*activities.Error](err); ok {
		return drift.New(fmt.Sprintf("rows of %s cannot be put back beside what others have done since: %s", k.Of.FullName(),
			e.Message))
	}
	return err
}

// inAnyOrder does all of these, and those that fail again after the others, until no more of them
// succeed. It returns those that are left, and why the first of them fails. Each round goes the
// other way, since what others need tends to be before them, or behind.
func inAnyOrder[T any](c *server.Connection, all []T, do func(T) error) (left []T, why, err error) {
	for {
		left, why = nil, nil
		for _, each := range all {
			if err := c.Run("SAVEPOINT each"); err != nil {
				return nil, nil, err
			}
			failed := do(each)
			end := "RELEASE each"
			if _, isOrder := errors.AsType[drift.Error](failed); isOrder {
				left, end = append(left, each), "ROLLBACK TO each; RELEASE each"
				if why == nil {
					why = failed
				}
			} else if failed != nil {
				return nil, nil, failed
			}
			if err := c.Run(end); err != nil {
				return nil, nil, err
			}
		}
		if len(left) == 0 || len(left) == len(all) {
			return left, why, nil
		}
		slices.Reverse(left)
		all = left
	}
}
