package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
)

// database is a connection to a database, with a guard over the statements of a step.
type database struct {
	connection

	path string
	id   identity
	guard
}

// identity identifies the file of a database: a copy in its place has another identity.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, fmt.Errorf("%s: this system does not say which file it is", path)
	}
	return identity{st.Dev, st.Ino}, nil
}

// open opens the database at a path of locate, also to read: a reader has to clear up what a writer
// left that died.
func (w *world) open(path string) (*database, error) {
	before, err := identify(path)
	if err != nil {
		return nil, err
	}
	conn, err := openConnection(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, explain(path, err)
	}
	d := &database{connection: conn, path: path}
	if d.id, err = identify(path); err == nil && d.id != before {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	conn.SetBusyTimeout(max(w.Busy, time.Millisecond))
	if err == nil {
		err = errors.Join(conn.SetAuthorizer(&d.guard), d.run("PRAGMA synchronous = FULL"))
	}
	if err == nil {
		_, err = d.number("SELECT count(*) FROM sqlite_schema") // reads the header
	}
	if err != nil {
		conn.Close()
		return nil, explain(path, err)
	}
	return d, nil
}

// begin opens a write transaction; end rolls it back unless it was committed.
func (d *database) begin() (end func(), err error) {
	if err := d.run("BEGIN IMMEDIATE"); err != nil {
		return nil, explain(d.path, err)
	}
	return func() {
		if !d.AutocommitEnabled() {
			_ = d.run("ROLLBACK") // closing the connection does the same
		}
	}, nil
}

// beginReading opens a transaction that sees the database as it is now, to the end.
func (d *database) beginReading() error {
	if err := d.run("BEGIN"); err != nil {
		return err
	}
	_, err := d.number("SELECT count(*) FROM sqlite_schema")
	return err
}

func (d *database) commit() error { return explain(d.path, d.run("COMMIT")) }

// run runs one of our own statements.
func (d *database) run(sql string, params ...any) error {
	return run(d.Conn, sql, params, nil)
}

// number is the first value that one of our own statements returns, or 0.
func (d *database) number(sql string, params ...any) (n int64, err error) {
	return n, run(d.Conn, sql, params, func(s *sqlite.Stmt) error { n = s.ColumnInt64(0); return nil })
}

// run runs a statement with values as they are in rows.
func run(conn *sqlite.Conn, sql string, params []any, row func(*sqlite.Stmt) error) (err error) {
	s, err := conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Reset(), s.ClearBindings()) }()
	for i, v := range params {
		if err := bindValue(s, i+1, v); err != nil {
			return err
		}
	}
	for {
		more, err := s.Step()
		if err != nil || !more {
			return err
		}
		if row != nil {
			if err := row(s); err != nil {
				return err
			}
		}
	}
}

// explain turns an error of SQLite into one of the contract.
func explain(path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*activities.Error](err); ok || strings.HasPrefix(err.Error(), path) {
		return err
	}
	refused := func(format string, args ...any) error {
		return activities.Errorf(activities.Refused, "%s: "+format, append([]any{path}, args...)...)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultNotADB:
		return refused("this is not an SQLite database, or an encrypted one; nothing was touched")
	case sqlite.ResultCorrupt:
		return refused("the database is damaged (%v); restore it from a backup", err)
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultCantOpen:
		return refused("the worker may not write it, or its folder (%v); give the worker's user the right to do so", err)
	case sqlite.ResultBusy, sqlite.ResultLocked:
		return fmt.Errorf("%s is locked by another program; nothing was touched, it is tried again: %w", path, err)
	case sqlite.ResultConstraint:
		return activities.Errorf(activities.ActionDenied, "%s: the database refuses it (%v); nothing was changed", path, err)
	case sqlite.ResultError, sqlite.ResultAuth, sqlite.ResultMismatch, sqlite.ResultRange, sqlite.ResultTooBig,
		sqlite.ResultSchema:
		return refused("%v; nothing was changed", err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// guard checks the statements of a step while they are compiled.
type guard struct {
	armed bool
	// reads: the statements may only read.
	reads bool
	// touched are the tables that the statements write.
	touched map[string]bool
	// taken are those of them of which rows may go or change.
	taken map[string]bool
	// schema are the reasons why rows are not enough to undo them.
	schema []string
	// denied is why a statement is refused.
	denied string
}

// readingPragmas are those that a step may use, or that full-text tables use themselves
// (data_version); those that take no value when they only read are in settingPragmas.
var readingPragmas = " data_version table_info table_xinfo table_list index_list index_info index_xinfo " +
	"foreign_key_list foreign_key_check integrity_check quick_check database_list compile_options "

const settingPragmas = " user_version application_id "

// Authorize implements sqlite.Authorizer.
func (g *guard) Authorize(a sqlite.Action) sqlite.AuthResult {
	if !g.armed {
		return sqlite.AuthResultOK
	}
	deny := func(format string, args ...any) sqlite.AuthResult {
		g.denied = fmt.Sprintf(format, args...)
		return sqlite.AuthResultDeny
	}
	op := a.Type()
	if strings.EqualFold(a.Table(), markers) && op != sqlite.OpRead {
		return deny("%s is the table in which steps are marked; it is not for statements", markers)
	}
	switch op {
	// load_extension is off in every connection
	case sqlite.OpSelect, sqlite.OpRecursive, sqlite.OpRead, sqlite.OpFunction:
	case sqlite.OpTransaction, sqlite.OpSavepoint:
		return deny("BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not allowed: all statements of a step are one transaction")
	case sqlite.OpAttach, sqlite.OpDetach:
		return deny("ATTACH, DETACH and VACUUM are not allowed: a step uses one database; give each its own step")
	case sqlite.OpPragma:
		return g.authorizePragma(a, deny)
	case sqlite.OpInsert, sqlite.OpUpdate, sqlite.OpDelete:
		if a.Database() == "temp" || strings.HasPrefix(a.Table(), "sqlite_temp_") {
			return sqlite.AuthResultOK
		}
		if g.reads {
			return deny("the statement changes %s; sqlite.query only reads, use sqlite.exec", a.Table())
		}
		g.touched[strings.ToLower(a.Table())] = true
		if op != sqlite.OpInsert {
			g.taken[strings.ToLower(a.Table())] = true
		}
	default:
		if strings.Contains(op.String(), "TEMP") {
			return deny("temporary tables, views and triggers are not allowed: a step leaves nothing but its change")
		}
		if g.reads {
			return deny("the statement changes the schema; sqlite.query only reads, use sqlite.exec")
		}
		g.schema = append(g.schema,
			"it changes the schema ("+strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(op.String(), "SQLITE_"), "_", " "))+
				")")
	}
	return sqlite.AuthResultOK
}

func (g *guard) authorizePragma(a sqlite.Action, deny func(string, ...any) sqlite.AuthResult) sqlite.AuthResult {
	name := " " + strings.ToLower(a.Pragma()) + " "
	switch {
	case strings.Contains(readingPragmas, name):
	case strings.Contains(settingPragmas, name) && a.PragmaArg() == "":
	case strings.Contains(settingPragmas, name) && !g.reads:
		g.schema = append(g.schema, "it sets PRAGMA"+strings.TrimRight(name, " "))
	case name == " defer_foreign_keys " && !g.reads:
	default:
		return deny("PRAGMA %s is not allowed in a step", a.Pragma())
	}
	return sqlite.AuthResultOK
}

// armToWrite begins to check statements that may change something, armToRead those that may not.
func (g *guard) armToWrite() (disarm func()) {
	*g = guard{armed: true, touched: map[string]bool{}, taken: map[string]bool{}}
	return func() { g.armed = false }
}

func (g *guard) armToRead() (disarm func()) {
	disarm = g.armToWrite()
	g.reads = true
	return disarm
}
