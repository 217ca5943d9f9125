package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// A copy is a database of its own, which the server has made with another one as its template, and
// to which nobody can connect. While the server copies, it holds a lock on the template that lets no
// session begin there; this ends with the statement, whatever becomes of the worker, so that there
// is nothing that would have to be put back.

// copyPrefix begins the names of copies. One that is not complete has another name.
const copyPrefix = "unwind_checkpoint_"

// copied is an image that is a copy.
type copied struct {
	c           *server.Connection
	taken       checkpoint
	token       *journal.Token
	application string
}

// checkThere is DamagedRecord where somebody has dropped the copy.
func (i *copied) checkThere() error {
	there, err := findDatabase(i.c, i.taken.Copy)
	if err == nil && there == 0 {
		err = activities.Errorf(activities.DamagedRecord,
			"the checkpoint of the database %s is gone: the server has no database %s; nothing was touched", i.c.Name,
			i.taken.Copy)
	}
	return err
}

// read is what the copy contained when it was first read: nobody can change it.
func (i *copied) read() (m manifest, err error) {
	if err := i.checkThere(); err != nil {
		return nil, err
	}
	if found, err := i.token.Read(contentsDoc, &m); found || err != nil {
		return m, err
	}
	return i.verify()
}

func (i *copied) verify() (is manifest, err error) {
	if err := i.checkThere(); err != nil {
		return nil, err
	}
	if is, err = i.readCopy(); err != nil {
		return nil, fmt.Errorf("database %s: the checkpoint %s cannot be read: %w", i.c.Name, i.taken.Copy, err)
	}
	var was manifest
	found, err := i.token.Read(contentsDoc, &was)
	if err == nil && !found {
		was = is
		_, err = i.token.Create(contentsDoc, &is)
	}
	if err != nil {
		return nil, err
	}
	if was.exact() != is.exact() {
		return nil, activities.Errorf(activities.DamagedRecord,
			"the checkpoint of the database %s: somebody has changed the database %s; nothing was touched:\n%s", i.c.Name,
			i.taken.Copy, was.diff(is))
	}
	return is, nil
}

// readCopy lets its role connect for so long.
func (i *copied) readCopy() (m manifest, err error) {
	allow := func(is string) error {
		return i.c.Run("ALTER DATABASE " + server.Quote(i.taken.Copy) + " ALLOW_CONNECTIONS " + is)
	}
	if err := allow("true"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, allow("false")) }()
	return readDatabase(i.c, i.taken.Copy, i.application)
}

func (i *copied) makeFresh(m *server.Connection, token string) (string, error) {
	name := newName(token)
	if err := createFrom(m, name, i.taken.Copy); err != nil {
		return name, err
	}
	return name, setProperties(m, name, i.taken.Quoted, i.taken.Properties)
}

func (i *copied) describe() string {
	return "it is made from a copy, by the server itself (CREATE DATABASE ... TEMPLATE)"
}

// createFrom makes a database as another one is. To copy its files is faster than to write them to
// the log; where the server can have the filesystem share them, this takes as long at any size.
func createFrom(m *server.Connection, name, template string) error {
	version, err := majorVersion(m)
	if err != nil {
		return err
	}
	create := "CREATE DATABASE " + server.Quote(name) + " TEMPLATE " + server.Quote(template)
	if version >= 15 {
		create += " STRATEGY FILE_COPY"
	}
	if version >= 18 && m.Run("SET file_copy_method = clone") == nil {
		if err := m.Run(create); err == nil || retryable(err) && !server.IsCode(err, "58") {
			return err
		}
		if err := m.Run("RESET file_copy_method"); err != nil { // this filesystem shares no files
			return err
		}
	}
	return m.Run(create)
}

// setProperties gives a database those of another one, which is called quoted in the statements.
func setProperties(m *server.Connection, name, quoted string, statements []string) error {
	for _, each := range statements {
		if err := m.Run(strings.Replace(each, "DATABASE "+quoted+" ", "DATABASE "+server.Quote(name)+" ", 1)); err != nil {
			return err
		}
	}
	return nil
}

// copying makes a copy.
type copying struct {
	c, m, waker *server.Connection // to the database, and twice to that for maintenance
	token       string
	taken       *checkpoint
}

// run makes the copy under a name that nobody knows, and then gives it its own.
func (k copying) run() error {
	final, application := copyPrefix+k.token, server.ForwardName+" "+k.token
	if err := dropMade(k.m, k.token); err != nil { // of attempts that have ended
		return err
	}
	name, oid, err := whoAmI(k.c)
	if err != nil {
		return err
	}
	before, err := shared(k.m, oid)
	if err == nil {
		k.taken.Properties, err = readProperties(k.c, name, k.taken.Quoted, application)
	}
	if err != nil {
		return err
	}
	fresh := newName(k.token)
	defer func() { _ = dropDatabase(k.m, fresh) }() // nothing, once it has another name
	reachCheckpoint("copying")
	unable, err := ender{own: k.c, oid: oid, lock: "ShareLock"}.during(k.waker,
		func() error { return createFrom(k.m, fresh, name) })
	if err != nil && unable != nil {
		return unable
	}
	if err != nil {
		return fmt.Errorf("database %s: the checkpoint cannot be taken: %w", k.c.Name, err)
	}
	reachCheckpoint("copied")
	if err := setProperties(k.m, fresh, k.taken.Quoted, k.taken.Properties); err != nil {
		return err
	}
	after, err := shared(k.m, oid)
	if err == nil && after != before {
		err = fmt.Errorf("database %s: its settings were changed while it was copied; it is tried again", k.c.Name)
	}
	if err != nil {
		return err
	}
	k.taken.Copy = final
	err = errors.Join(
		k.m.Run("ALTER DATABASE "+server.Quote(fresh)+" ALLOW_CONNECTIONS false"),
		k.m.Run("ALTER DATABASE "+server.Quote(fresh)+" RENAME TO "+server.Quote(final)))
	reachCheckpoint("named")
	return err
}

// shared is what the server knows of a database that is not in it, and that a copy does not get.
func shared(m *server.Connection, oid uint32) (text string, err error) {
	return text, m.Scan(`SELECT concat_ws(' ', datdba, datacl, datconnlimit, datistemplate,
			shobj_description(oid, 'pg_database'),
			(SELECT string_agg(s::text, ' ' ORDER BY s::text) FROM pg_db_role_setting s WHERE setdatabase = d.oid),
			(SELECT string_agg(l::text, ' ' ORDER BY l::text) FROM pg_shseclabel l WHERE objoid = d.oid))
		FROM pg_database d WHERE oid = $1`, []any{oid}, &text)
}

// readProperties reads the statements that set what a copy does not get: owner, settings,
// privileges, comment.
func readProperties(c *server.Connection, name, quoted, application string) ([]string, error) {
	t, err := newTools(c, name, application)
	if err != nil {
		return nil, err
	}
	var script bytes.Buffer
	if err := t.run(&script, "pg_dump", "--create", "--schema-only", "--exclude-schema=*"); err != nil {
		return nil, err
	}
	create, properties := databaseStatements(script.String(), quoted, quoted)
	if len(create) == 0 {
		return nil, fmt.Errorf("database %s: pg_dump does not say how it is made", c.Name)
	}
	return append(create[1:], properties...), nil
}

// dropMade drops what a forward of postgres.checkpoint has made on the server.
func dropMade(m *server.Connection, token string) error {
	return errors.Join(dropFresh(m, token), dropDatabase(m, copyPrefix+token))
}
