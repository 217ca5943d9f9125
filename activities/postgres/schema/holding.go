package schema

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// HoldingPattern matches the names of schemas that hold what was put aside.
const HoldingPattern = `^unwind_(-?[0-9]+)_[0-9]+$`

var holding = regexp.MustCompile(HoldingPattern)

// HoldingOf is the schema that holds what the alteration with this number takes out of the way, for
// a record.
func HoldingOf(record int64, alteration int) string {
	return fmt.Sprintf("unwind_%d_%d", record, alteration)
}

// HolderOf returns the record that a schema holds things for; false for schemas that are not ours,
// whatever they are called.
func HolderOf(schema string) (record int64, isOurs bool) {
	found := holding.FindStringSubmatch(schema)
	if found == nil {
		return 0, false
	}
	record, err := strconv.ParseInt(found[1], 10, 64)
	return record, err == nil
}

// IsJournal reports whether a schema is ours.
func IsJournal(schema string) bool {
	_, isHolding := HolderOf(schema)
	return isHolding || schema == "unwind"
}

// IsHeld reports whether a quoted name is one in a schema of ours.
func IsHeld(name string) bool { return heldName.MatchString(name) }

var heldName = regexp.MustCompile(`^"?unwind_-?[0-9]+_[0-9]+"?\.`)

// HeldParts lists what is in schemas that hold something, each with the name of its schema, by ids:
// names in it change with what it uses.
func HeldParts(c *server.Connection) ([]string, error) {
	return server.Collect(c, pgx.RowTo[string], `SELECT nspname || ' ' || part FROM (
			SELECT relnamespace, 'relation ' || oid FROM pg_class WHERE relkind <> 't'
			UNION ALL SELECT relnamespace, format('column %s %s', attrelid, attnum) FROM pg_attribute
			JOIN pg_class c ON c.oid = attrelid WHERE attnum > 0 AND NOT attisdropped AND relkind <> 't'
			UNION ALL SELECT relnamespace, 'default ' || d.oid FROM pg_attrdef d JOIN pg_class c ON c.oid = adrelid
			UNION ALL SELECT connamespace, 'constraint ' || oid FROM pg_constraint
			UNION ALL SELECT relnamespace, 'trigger ' || t.oid FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
			WHERE NOT tgisinternal AND NOT t.`+server.IsTrigger+`
			UNION ALL SELECT relnamespace, 'rule ' || w.oid FROM pg_rewrite w JOIN pg_class c ON c.oid = ev_class
			UNION ALL SELECT relnamespace, 'policy ' || p.oid FROM pg_policy p JOIN pg_class c ON c.oid = polrelid
			UNION ALL SELECT typnamespace, 'type ' || oid FROM pg_type UNION ALL SELECT pronamespace, 'function ' || oid
			FROM pg_proc) s(id, part)
		JOIN pg_namespace n ON n.oid = id WHERE nspname ~ $1 ORDER BY 1`, HoldingPattern)
}
