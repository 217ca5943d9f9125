package sqlite

import (
	"encoding/binary"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// The driver has no function for what follows and SQLite has: the hook that is called before each
// change of a row, on which SQLite's own sessions are built, the switch for triggers, and whether a
// statement is an EXPLAIN. So this file reaches for the connection inside of the driver.

// handle is a connection as SQLite knows it.
type handle struct {
	tls *libc.TLS
	db  uintptr
}

func handleOf(c *sqlite.Conn) handle {
	v := reflect.ValueOf(c).Elem()
	return handle{(*libc.TLS)(v.FieldByName("tls").UnsafePointer()), uintptr(v.FieldByName("conn").Uint())}
}

// isExplain reports whether a statement only explains another.
func isExplain(c *sqlite.Conn, s *sqlite.Stmt) bool {
	at := uintptr(reflect.ValueOf(s).Elem().FieldByName("stmt").Uint())
	return lib.Xsqlite3_stmt_isexplain(handleOf(c).tls, at) != 0
}

// setTriggers switches the triggers of the database on or off for this connection.
func setTriggers(c *sqlite.Conn, on int32) error {
	h := handleOf(c)
	args := libc.NewVaList(on, uintptr(0))
	defer libc.Xfree(h.tls, args)
	return sqlite.ResultCode(lib.Xsqlite3_db_config(h.tls, h.db, lib.SQLITE_DBCONFIG_ENABLE_TRIGGER, args)).ToError()
}

// rowChange is a row that is about to change: with the rowid that it has and will have, of no
// meaning in a table without.
type rowChange struct {
	handle

	op             sqlite.OpType
	table          string
	oldRow, newRow int64
}

var watchers sync.Map // uintptr -> func(rowChange)

// watch calls f before each change of a row of the main database, whatever makes it: a statement, a
// trigger, a foreign key, or the REPLACE of a conflict. f must not use the connection.
func watch(c *sqlite.Conn, f func(rowChange)) (stop func()) {
	h := handleOf(c)
	watchers.Store(h.db, f)
	// The address of a function that is declared is that of its code, wherever the variable is: so the
	// driver does it, too.
	callback := onChange
	lib.Xsqlite3_preupdate_hook(h.tls, h.db, *(*uintptr)(unsafe.Pointer(&callback)), h.db)
	return func() {
		lib.Xsqlite3_preupdate_hook(h.tls, h.db, 0, 0)
		watchers.Delete(h.db)
	}
}

func onChange(tls *libc.TLS, _, db uintptr, op int32, database, table uintptr, oldRow, newRow int64) {
	f, found := watchers.Load(db)
	if !found || libc.GoString(database) != "main" {
		return
	}
	f.(func(rowChange))(rowChange{handle{tls, db}, sqlite.OpType(op), libc.GoString(table), oldRow, newRow}) //nolint:forcetypeassert // watch stores nothing else
}

const pointerSize = 8

// values reads the columns with these numbers, as they are or as they will be.
func (r rowChange) values(before bool, columns []int) (row []any, err error) {
	p := libc.Xmalloc(r.tls, pointerSize)
	defer libc.Xfree(r.tls, p)
	read := lib.Xsqlite3_preupdate_new
	if before {
		read = lib.Xsqlite3_preupdate_old
	}
	for _, c := range columns {
		if err := sqlite.ResultCode(read(r.tls, r.db, int32(c), p)).ToError(); err != nil { //nolint:gosec // SQLite has at most 32767 columns
			return nil, err
		}
		row = append(row, valueAt(r.tls, uintptr(binary.NativeEndian.Uint64(libc.GoBytes(p, pointerSize)))))
	}
	return row, nil
}

func valueAt(tls *libc.TLS, v uintptr) any {
	raw := func(at uintptr) []byte { return libc.GoBytes(at, int(lib.Xsqlite3_value_bytes(tls, v))) }
	switch sqlite.ColumnType(lib.Xsqlite3_value_type(tls, v)) {
	case sqlite.TypeInteger:
		return lib.Xsqlite3_value_int64(tls, v)
	case sqlite.TypeFloat:
		return lib.Xsqlite3_value_double(tls, v)
	case sqlite.TypeText:
		return strings.Clone(string(raw(lib.Xsqlite3_value_text(tls, v))))
	case sqlite.TypeBlob:
		return append([]byte{}, raw(lib.Xsqlite3_value_blob(tls, v))...)
	case sqlite.TypeNull:
	}
	return nil
}
