package checkpoint

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// The databases of a token: what is restored is made under a name that no other attempt has, and
// what it replaces is kept. That there is one which is kept is the fence: only one attempt can give
// it its name. What the undo of postgres.restore replaces is kept under a name of its own.
const (
	freshPrefix  = "unwind_new_"
	keptPrefix   = "unwind_kept_"
	undonePrefix = "unwind_undone_"
)

// maintenance is the database that every server has: one cannot be renamed from within.
const maintenance = "postgres"

// findDatabase returns the number of a database; 0 if there is none with this name.
func findDatabase(c *server.Connection, name string) (oid uint32, err error) {
	return oid, c.Scan("SELECT coalesce((SELECT oid FROM pg_database WHERE datname = $1), 0)", []any{name}, &oid)
}

func dropDatabase(c *server.Connection, name string) error {
	return c.Run("DROP DATABASE IF EXISTS " + server.Quote(name) + " WITH (FORCE)")
}

// dropFresh drops what attempts of a token have left.
func dropFresh(c *server.Connection, token string) error {
	names, err := server.Collect(c, pgx.RowTo[string],
		"SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)", freshPrefix+token)
	for _, name := range names {
		err = errors.Join(err, dropDatabase(c, name))
	}
	return err
}

// newName is a name for a database of a token that no other attempt has.
func newName(token string) string {
	random := make([]byte, 4)
	rand.Read(random)
	return freshPrefix + token + "_" + hex.EncodeToString(random)
}

// restoreFresh makes a database from a dump, with its owner, encoding, locale, settings, privileges
// and comment. Quoted is the name that the dump has for it.
func (t *tools) restoreFresh(c *server.Connection, token, file, quoted string) (name string, err error) {
	name = newName(token)
	var script bytes.Buffer
	if err := t.run(&script, "pg_restore", "--create", "--schema-only", "--file=-", file); err != nil {
		return "", err
	}
	create, properties := databaseStatements(script.String(), quoted, server.Quote(name))
	for _, statement := range create {
		if err := c.Run(statement); err != nil {
			return name, err
		}
	}
	if err := t.run(nil, "pg_restore", "--exit-on-error", "--dbname="+name, file); err != nil {
		return name, err
	}
	for _, statement := range properties { // at the end: a setting may concern what restores
		if err := c.Run(statement); err != nil {
			return name, err
		}
	}
	return name, nil
}

// databaseStatements are those of a script that make a database itself, under another name, and
// those that set its properties.
func databaseStatements(script, quoted, name string) (create, properties []string) {
	var of string
	for line := range strings.SplitSeq(script, "\n") {
		if found := header.FindStringSubmatch(line); found != nil {
			of = ""
			if strings.HasPrefix(found[3], "DATABASE") || found[4] == "-" && strings.HasPrefix(found[2], "DATABASE ") {
				of = found[3]
			}
			continue
		}
		if of == "" || line == "" || ambient.MatchString(line) {
			continue
		}
		line = strings.Replace(line, "DATABASE "+quoted+" ", "DATABASE "+name+" ", 1)
		switch {
		case of == "DATABASE":
			create = append(create, line)
		case len(properties) > 0 && !strings.HasSuffix(properties[len(properties)-1], ";"): // a text of several lines
			properties[len(properties)-1] += "\n" + line
		default:
			properties = append(properties, line)
		}
	}
	return create, properties
}

// errReplaced says that another attempt has put the database in place.
var errReplaced = errors.New("another attempt was faster")

// exchange gives the name of a database to another one.
type exchange struct {
	*Checkpoints

	// own is a connection to the database that is replaced, and m one to that for maintenance.
	own, m      *server.Connection
	application string
	name        string // that is exchanged
	oid         uint32 // of the database that has it
	fresh       string // the database that gets it
	aside       string // the name that the other one gets
	pass        func(string)
	// impatient has sessions ended that keep the tables from being locked: those of transactions that
	// nobody goes on with, too.
	impatient bool
	// check is called when nobody can change a row any more, and all connections are there.
	check func() error
}

// run makes the exchange: from the check on nobody can change a row in the database that is
// replaced. All connections are opened before the check: a process that wakes after it, and after
// its sessions were ended, has none.
func (x exchange) run() error {
	if err := x.own.Run("BEGIN"); err != nil {
		return err
	}
	defer x.own.Rollback()
	waker, err := x.connect(maintenance)
	if err != nil {
		return err
	}
	defer waker.Close()
	if err := x.lock(waker); err != nil {
		return err
	}
	fresh, err := x.connect(x.fresh)
	if err != nil {
		return err
	}
	defer fresh.Close()
	x.pass("locked")
	if err := x.check(); err != nil {
		return err
	}
	if err := x.Rows.TakeOver(x.own, fresh); err != nil {
		return err
	}
	fresh.Close()
	x.pass("taken-over")
	return x.rename(waker, ender{own: x.own, oid: x.oid, also: x.fresh, lock: "AccessExclusiveLock"})
}

// lock keeps others from changing rows.
func (x exchange) lock(waker *server.Connection) error {
	if !x.impatient {
		return lockTables(x.own)
	}
	unable, err := ender{own: x.own, oid: x.oid, blocking: true}.during(waker,
		func() error { return lockTables(x.own) })
	if err != nil && unable != nil {
		return unable
	}
	return err
}

// connect connects to another database of the server.
func (x exchange) connect(database string) (*server.Connection, error) {
	return x.Databases.ConnectTo(x.own.Ctx, x.own.Name, x.application, database)
}

// rename exchanges the names, in one transaction. While that waits for the sessions of the database
// to end, nobody can connect to it. They are ended.
func (x exchange) rename(waker *server.Connection, sessions ender) error {
	unable, err := sessions.during(waker, func() error {
		return x.m.InTransaction(func() error {
			if err := x.m.Run("SET LOCAL lock_timeout = '30s'; ALTER DATABASE " + server.Quote(x.name) + " RENAME TO " +
				server.Quote(x.aside)); err != nil {
				return err
			}
			now, err := findDatabase(x.m, x.aside)
			if err == nil && now != x.oid {
				err = errReplaced
			}
			if err != nil {
				return err
			}
			return x.m.Run("ALTER DATABASE " + server.Quote(x.fresh) + " RENAME TO " + server.Quote(x.name))
		})
	})
	switch {
	case server.IsCode(err, "42P04", "3D000"):
		return errReplaced
	case err != nil && unable != nil:
		return unable
	}
	return err
}

// ender ends the sessions of a database, the own one last. It goes by the number: when a process
// wakes late, another database may have the name.
type ender struct {
	own  *server.Connection
	oid  uint32
	also string // a name that only a database has in which nobody has anything to do
	lock string // that keeps others from beginning, once it is granted
	// blocking leaves all sessions alone but those that the own one waits for.
	blocking bool
}

// during calls do, which waits for the sessions to end, while it ends them. Unable is set where one
// could not be ended.
func (s ender) during(waker *server.Connection, do func() error) (unable, err error) {
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- s.run(waker, stop) }()
	err = do()
	close(stop)
	return <-ended, err
}

// run ends the sessions until stop: the own one last, once no other can begin.
func (s ender) run(c *server.Connection, stop <-chan struct{}) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	own := s.own.PgConn().PID()
	var failed error
	for {
		select {
		case <-stop:
			return failed
		case <-again.C:
		}
		type session struct {
			PID  uint32
			User string
		}
		all, err := server.Collect(c, pgx.RowToStructByPos[session], `SELECT pid, coalesce(usename, '') FROM pg_stat_activity
			WHERE (datid = $1 OR datname = $4) AND pid <> $2 AND coalesce(backend_type, '') NOT LIKE 'autovacuum%'
			AND (NOT $3 OR pid = ANY(pg_blocking_pids($2)))`, s.oid, own, s.blocking, s.also)
		if err != nil {
			return err
		}
		failed = nil
		for _, each := range all {
			if err := c.Run("SELECT pg_terminate_backend($1)", each.PID); err != nil {
				failed = activities.Errorf(activities.Refused,
					"database %s: the session %d of %s uses it, and the worker's role may not end that; end it, or grant the "+
						"worker's role pg_signal_backend, and retry: nothing was touched",
					c.Name, each.PID, each.User)
			}
		}
		if s.blocking {
			continue
		}
		var closed bool
		if err := c.Scan(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass
			AND objid = $1 AND mode = $2 AND granted)`, []any{s.oid, s.lock}, &closed); err != nil {
			return err
		}
		if closed && len(all) == 0 {
			s.own.Close()
		}
	}
}

// lockTables keeps others from changing rows, until the transaction ends.
func lockTables(c *server.Connection) error {
	if err := c.Run("SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return err
	}
	tables, err := server.Collect(c, pgx.RowTo[string],
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND nspname !~ '^pg_' AND nspname <> 'information_schema'
		ORDER BY 1`)
	if err != nil {
		return err
	}
	for few := range slices.Chunk(tables, 100) {
		if err := c.Run(fmt.Sprintf("LOCK TABLE ONLY %s IN SHARE MODE", strings.Join(few, ", ONLY "))); err != nil {
			return err
		}
	}
	return nil
}
