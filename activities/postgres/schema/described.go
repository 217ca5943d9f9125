package schema

import (
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
