package found

import (
	"errors"
	"fmt"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// marks is the table in which Unwind marks the steps that have committed: it is not part of what a
// database holds.
const marks = "_unwind_steps"

// Database takes a snapshot of an SQLite database: its schema, and every row with all columns, by
// its rowid.
func Database(path string) (_ Snapshot, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	s := Snapshot{}
	var tables []string
	if err := sqlitex.Execute(conn, "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name <> ?",
		&sqlitex.ExecOptions{Args: []any{marks}, ResultFunc: func(row *sqlite.Stmt) error {
			s[row.ColumnText(0)+" "+row.ColumnText(1)] = Facts{"sql": row.ColumnText(2)}
			if row.ColumnText(0) == "table" {
				tables = append(tables, row.ColumnText(1))
			}
			return nil
		}}); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	for _, table := range tables {
		quoted := `"` + strings.ReplaceAll(table, `"`, `""`) + `"`
		if err := sqlitex.Execute(conn, "SELECT rowid, * FROM "+quoted,
			&sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
				f := Facts{}
				for i := 1; i < row.ColumnCount(); i++ {
					f[row.ColumnName(i)] = fmt.Sprintf("%s %q", row.ColumnType(i), row.ColumnText(i))
				}
				s[fmt.Sprintf("row %s %d", table, row.ColumnInt64(0))] = f
				return nil
			}}); err != nil {
			return nil, fmt.Errorf("database %s: table %s: %w", path, table, err)
		}
	}
	return s, nil
}
