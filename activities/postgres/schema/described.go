package schema

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// described are the catalogs whose rows the description of a schema covers, or that follow from those.
var described = []string{
	"pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_depend", "pg_shdepend", "pg_description", "pg_proc", "pg_aggregate", "pg_type", "pg_enum", "pg_range", "pg_cast",
	"pg_namespace", "pg_rewrite", "pg_trigger", "pg_policy", "pg_sequence", "pg_inherits", "pg_partitioned_table", "pg_statistic", "pg_statistic_ext", "pg_statistic_ext_data", "pg_publication_rel",
}

// Undescribed returns those among catalogs, given by their ids, that no description shows.
func Undescribed(c *server.Connection, catalogs []uint32) ([]string, error) {
	return server.Collect(c, pgx.RowTo[string], "SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND relname <> ALL($2::text[]) AND relnamespace = 'pg_catalog'::regnamespace ORDER BY 1", catalogs, described)
}

// ofObject is the column of a catalog that says which object a row is of.
var ofObject = map[string]string{
	"pg_attribute": "attrelid", "pg_attrdef": "adrelid", "pg_index": "indexrelid", "pg_description": "objoid", "pg_aggregate": "aggfnoid", "pg_enum": "enumtypid", "pg_range": "rngtypid",
	"pg_rewrite": "ev_class", "pg_trigger": "tgrelid", "pg_policy": "polrelid", "pg_sequence": "seqrelid", "pg_inherits": "inhrelid", "pg_partitioned_table": "partrelid",
	"pg_statistic_ext_data": "stxoid", "pg_publication_rel": "prrelid",
	"pg_class": "oid", "pg_constraint": "oid", "pg_proc": "oid", "pg_type": "oid", "pg_cast": "oid", "pg_namespace": "oid", "pg_statistic_ext": "oid",
}

// BuiltIn returns what the transaction has changed of the server's own objects, given the ids of catalogs whose rows it has changed: no
// description shows those. The schema public, 2200, is described.
func BuiltIn(c *server.Connection, catalogs []uint32) (changed []string, err error) {
	names, err := server.Collect(c, pgx.RowTo[string], "SELECT relname::text FROM pg_class WHERE oid = ANY($1::oid[]) AND relnamespace = 'pg_catalog'::regnamespace ORDER BY 1", catalogs)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		column, known := ofObject[name]
		if !known {
			continue
		}
		var touched bool
		if err := c.Scan(fmt.Sprintf("SELECT EXISTS (SELECT FROM pg_catalog.%[1]s x WHERE x.%[2]s::oid < $1 AND x.%[2]s::oid <> 2200 AND %[3]s)", name, column, Ours), []any{server.FirstNormalObject}, &touched); err != nil {
			return nil, err
		}
		if touched {
			changed = append(changed, name)
		}
	}
	return changed, nil
}
