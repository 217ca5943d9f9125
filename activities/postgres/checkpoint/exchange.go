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
// it its name.
const (
	freshPrefix = "unwind_new_"
	keptPrefix  = "unwind_kept_"
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

// makeFresh makes a database from a dump, with its owner, encoding, locale, settings, privileges
// and comment. Quoted is the name that the dump has for it.
func makeFresh(c *server.Connection, application, token, file, quoted string) (name string, err error) {
	random := make([]byte, 4)
	rand.Read(random)
	name = freshPrefix + token + "_" + hex.EncodeToString(random)
	t, err := newTools(c, maintenance, application+" "+token)
	if err != nil {
		return "", err
	}
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
var errReplaced = errors.New("another attempt of the undo was faster")

// replacing is an exchange of two databases. Own is a connection to the one that is replaced, which
// holds its tables locked.
type replacing struct {
	name, fresh, kept string
	oid               uint32 // of the database that is replaced
	own               *server.Connection
}

// replace gives the name of a database to a fresh one, and keeps the old one under another name, in
// one transaction. While that waits for the sessions of the database to end, nobody can connect to
// it. They are ended.
func replace(c *server.Connection, r replacing, waker *server.Connection) error {
	stop := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- endSessions(waker, r, stop) }()
	err := c.InTransaction(func() error {
		if err := c.Run("SET LOCAL lock_timeout = '30s'; ALTER DATABASE " + server.Quote(r.name) + " RENAME TO " +
			server.Quote(r.kept)); err != nil {
			return err
		}
		now, err := findDatabase(c, r.kept)
		if err == nil && now != r.oid {
			err = errReplaced
		}
		if err != nil {
			return err
		}
		return c.Run("ALTER DATABASE " + server.Quote(r.fresh) + " RENAME TO " + server.Quote(r.name))
	})
	close(stop)
	unable := <-ended
	switch {
	case server.IsCode(err, "42P04", "3D000"):
		return errReplaced
	case err != nil && unable != nil:
		return unable
	}
	return err
}

// endSessions ends the sessions of a database until stop: the own one last, once no other can
// begin.
func endSessions(c *server.Connection, r replacing, stop <-chan struct{}) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	own := r.own.PgConn().PID()
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
			WHERE datid = $1 AND pid <> $2 AND coalesce(backend_type, '') NOT LIKE 'autovacuum%'`, r.oid, own)
		if err != nil {
			return err
		}
		failed = nil
		for _, s := range all {
			if err := c.Run("SELECT pg_terminate_backend($1)", s.PID); err != nil {
				failed = activities.Errorf(activities.Refused,
					"database %s: the session %d of %s uses it, and the worker's role may not end that; end it, or grant the "+
						"worker's role pg_signal_backend, and retry: nothing was touched",
					c.Name, s.PID, s.User)
			}
		}
		var closed bool
		if err := c.Scan(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass
			AND objid = $1
			AND mode = 'AccessExclusiveLock' AND granted)`, []any{r.oid}, &closed); err != nil {
			return err
		}
		if closed && len(all) == 0 {
			r.own.Close()
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
