package sqlite

import (
	"sync"

	"zombiezen.com/go/sqlite"
)

// connection is a connection to a database. None is closed while another is opened: the library
// frees one before it forgets what it knows by its address, such as the authorizer, and a
// connection that is opened in between can have the same address.
type connection struct{ *sqlite.Conn }

var opening sync.Mutex

func openConnection(path string, flags sqlite.OpenFlags) (connection, error) {
	opening.Lock()
	defer opening.Unlock()
	conn, err := sqlite.OpenConn(path, flags)
	return connection{conn}, err
}

// Close closes the connection.
func (c connection) Close() error {
	opening.Lock()
	defer opening.Unlock()
	return c.Conn.Close()
}
