package stage

import (
	"errors"
	"path/filepath"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

func (s *Stage) database() string { return filepath.Join(s.path(dataFolder), "shop.db") }

// setDatabase makes a database with the plans that the site sells.
func (s *Stage) setDatabase() error {
	conn, err := sqlite.OpenConn(s.database(), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return err
	}
	return errors.Join(sqlitex.ExecuteScript(conn,
		`CREATE TABLE plan (name TEXT PRIMARY KEY, cents INTEGER NOT NULL, since TEXT);
		INSERT INTO plan VALUES ('team', 1500, '1.4.2'), ('solo', 500, NULL), ('legacy', 900, '0.9')`, nil), conn.Close())
}
