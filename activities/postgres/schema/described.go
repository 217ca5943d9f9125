package schema

import (
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// described are the catalogs whose rows the description of a schema covers, or that follow from
// those, each with the column that says which object a row is of.
var described = map[string]string{
	"pg_attribute": "attrelid", "pg_attrdef": "adrelid", "pg_index": "indexrelid", "pg_description": "objoid",
	"pg_aggregate": "aggfnoid", "pg_enum": "enumtypid", "pg_range": "rngtypid",
	"pg_rewrite": "ev_class", "pg_trigger": "tgrelid", "pg_policy": "polrelid", "pg_sequence": "seqrelid",
	"pg_inherits": "inhrelid", "pg_partitioned_table": "partrelid",
	"pg_statistic": "starelid", "pg_statistic_ext_data": "stxoid", "pg_publication_rel": "prrelid", "pg_depend": "objid",
	"pg_shdepend": "objid",
	"pg_class":    "oid", "pg_constraint": "oid", "pg_proc": "oid", "pg_type": "oid", "pg_cast": "oid",
	"pg_namespace":     "oid",
	"pg_statistic_ext": "oid",
}

func describedNames() []string { return slices.Sorted(maps.Keys(described)) }

// Undescribed returns those among catalogs, given by their ids, that no description shows.
func Undescribed(c *server.Connection, catalogs []uint32) ([]string, error) {
	return server.Collect(c, pgx.RowTo[string],
		"SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND relname <> ALL($2::text[]) AND relnamespace = "+
			"'pg_catalog'::regnamespace ORDER BY 1", catalogs, describedNames())
}

// BuiltIn returns what the transaction has changed of the server's own objects, given the ids of
// catalogs whose rows it has changed: no description shows those. The schema public, 2200, is
// described. Of a catalog that is not described, nobody knows whose its rows are.
func BuiltIn(c *server.Connection, catalogs []uint32) (changed []string, err error) {
	names, err := server.Collect(c, pgx.RowTo[string],
		"SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND relnamespace = 'pg_catalog'::regnamespace "+
			"ORDER BY 1", catalogs)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		column, known := described[name]
		if !known {
			changed = append(changed, name)
			continue
		}
		var touched bool
		if err := c.Scan(
			fmt.Sprintf(
				"SELECT EXISTS (SELECT FROM pg_catalog.%[1]s x WHERE x.%[2]s::oid < $1 AND x.%[2]s::oid <> 2200 AND %[3]s)", name,
				column, Ours), []any{server.FirstNormalObject}, &touched); err != nil {
			return nil, err
		}
		if touched {
			changed = append(changed, name)
		}
	}
	return changed, nil
}
