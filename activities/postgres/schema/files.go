package schema

import (
	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// FileNode is the file that a table's rows are in: another one after a TRUNCATE, or when it was
// rewritten.
type FileNode struct {
	Node uint32
	Kind string // of pg_class
	Name string // quoted
	Ours bool   // the current transaction has given it to the table
}

// FileNodes lists them by the ids of the tables, materialized views and sequences.
func FileNodes(c *server.Connection) (map[uint32]FileNode, error) {
	all := map[uint32]FileNode{}
	err := WithPlainNames(c, func() error {
		rows, err := c.Query(c.Ctx,
			"SELECT oid, relfilenode, relkind::text, oid::regclass::text, "+Ours+
				" FROM pg_class x WHERE relkind IN ('r', 'S', 'm') AND oid >= 16384")
		if err != nil {
			return c.Explain(err)
		}
		var oid uint32
		var f FileNode
		_, err = pgx.ForEachRow(rows, []any{&oid, &f.Node, &f.Kind, &f.Name, &f.Ours}, func() error {
			all[oid] = f
			return nil
		})
		return c.Explain(err)
	})
	return all, err
}
