package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// tools runs the programs pg_dump and pg_restore as the role of a connection. The password is in
// their environment, never on the command line.
type tools struct {
	ctx         context.Context //nolint:containedctx // it serves one call
	environment []string
	isPrivate   bool // an error may quote a row, and is not shown
}

// tools are the programs for the server of c, for the database with this name.
func newTools(c *server.Connection, database, application string) (*tools, error) {
	dsn, err := c.DSN()
	if err != nil {
		return nil, activities.Errorf(activities.Refused, "database %s: the connection string: %v", c.Name, err)
	}
	t := &tools{ctx: c.Ctx, isPrivate: len(c.Sensitive) > 0}
	config := c.Config()
	env := childenv.Minimal()
	maps.Copy(env, map[string]string{
		"LC_ALL": "C", "PGHOST": config.Host, "PGPORT": strconv.Itoa(int(config.Port)), "PGUSER": config.User,
		"PGDATABASE": database, "PGAPPNAME": application, "PGCONNECT_TIMEOUT": "10",
	})
	if config.Password != "" {
		env["PGPASSWORD"] = config.Password
	}
	for _, name := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
		variable := "PG" + strings.ToUpper(name)
		if value := cmp.Or(findSetting(dsn, name), os.Getenv(variable)); value != "" {
			env[variable] = value
		}
	}
	t.environment = childenv.List(env)
	return t, nil
}

// findSetting is a setting of a connection string; empty if it is not there.
func findSetting(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		return u.Query().Get(name)
	}
	found := regexp.MustCompile(`(?:^|\s)` + name + `\s*=\s*(?:'([^']*)'|(\S+))`).FindStringSubmatch(dsn)
	if found == nil {
		return ""
	}
	return cmp.Or(found[1], found[2])
}

// run runs a program, whose output goes to out.
func (t *tools) run(out io.Writer, program string, args ...string) error {
	var said bytes.Buffer
	c := exec.CommandContext(t.ctx, program, args...)
	c.Env, c.Stdout, c.Stderr = t.environment, out, &said
	err := c.Run()
	switch {
	case err == nil:
		return nil
	case t.ctx.Err() != nil:
		return context.Cause(t.ctx)
	case t.isPrivate:
		return fmt.Errorf("%s: %w; what it said is not shown, because the database has sensitive columns", program, err)
	}
	const most = 500
	first := said.String()
	if at := strings.Index(first, "error: "); at >= 0 {
		first, _, _ = strings.Cut(first[at:], "\n")
	}
	return fmt.Errorf("%s: %w: %s", program, err, first[:min(len(first), most)])
}

// readDatabase reads what a database of the server contains now.
func readDatabase(c *server.Connection, name, application string) (manifest, error) {
	t, err := newTools(c, name, application)
	if err != nil {
		return nil, err
	}
	var quoted string
	if err := c.Scan("SELECT quote_ident($1)", []any{name}, &quoted); err != nil {
		return nil, err
	}
	return t.readScript(quoted, "pg_dump", "--create", "--lock-wait-timeout=30s")
}

// whoAmI returns the name and the number of the database.
func whoAmI(c *server.Connection) (name string, oid uint32, err error) {
	return name, oid,
		c.Scan("SELECT datname::text, oid FROM pg_database WHERE datname = current_database()", nil, &name, &oid)
}

// manifestOf reads what a dump contains.
func (t *tools) manifestOf(file, quoted string) (manifest, error) {
	return t.readScript(quoted, "pg_restore", "--create", "--file=-", file)
}

func (t *tools) readScript(quoted, program string, args ...string) (manifest, error) {
	out, in := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := t.run(in, program, args...)
		in.CloseWithError(err)
		ran <- err
	}()
	m, err := readManifest(out, quoted)
	out.CloseWithError(err)
	if failed := <-ran; failed != nil {
		return nil, failed
	}
	return m, err
}

// majorVersion is that of the server.
func majorVersion(c *server.Connection) (version int, err error) {
	return version, c.Scan("SELECT current_setting('server_version_num')::int / 10000", nil, &version)
}

// checkTools refuses where pg_dump is not there, or too old for the server. It asks once for each
// version of a server: that takes a tenth of a second, and programs that have gone since say so.
func (s *Checkpoints) checkTools(c *server.Connection) error {
	server, err := majorVersion(c)
	if err != nil {
		return err
	}
	if _, does := s.served.Load(server); does {
		return nil
	}
	for _, program := range []string{"pg_dump", "pg_restore"} {
		ask := exec.CommandContext(c.Ctx, program, "--version")
		ask.Env = childenv.List(childenv.Minimal())
		out, err := ask.Output()
		if c.Ctx.Err() != nil { // the program was killed
			return c.Ctx.Err()
		}
		if err != nil {
			return activities.Errorf(activities.Refused,
				"database %s: a checkpoint needs the program %s on the PATH of the worker; install the client programs of "+
					"PostgreSQL %d: %v", c.Name, program, server, err)
		}
		found := regexp.MustCompile(`PostgreSQL\) (\d+)`).FindSubmatch(out)
		if found == nil {
			return activities.Errorf(activities.Refused, "database %s: %s does not tell its version: %q", c.Name, program, out)
		}
		if version, _ := strconv.Atoi(string(found[1])); version < server {
			return activities.Errorf(activities.Refused,
				"database %s: the server is PostgreSQL %d, and %s on the PATH of the worker is %d; install the client programs "+
					"of PostgreSQL %d", c.Name, server, program, version, server)
		}
	}
	s.served.Store(server, true)
	return nil
}

// checkRights refuses where the worker's role could not put a checkpoint back.
func checkRights(c *server.Connection) error {
	if len(c.Allow)+len(c.Deny) > 0 {
		return activities.Errorf(activities.Refused,
			"database %s: this worker's config limits the tables that steps may change (allow, deny), and an undo of a "+
				"checkpoint puts back all of them; give the database a second name in the config, without limits", c.Name)
	}
	var able, owns, isTemplate bool
	if err := c.Scan(
		`SELECT datistemplate, rolcreatedb OR rolsuper, pg_has_role(current_user, datdba, 'MEMBER')
		FROM pg_database, pg_roles WHERE datname = current_database() AND rolname = current_user`,
		nil, &isTemplate, &able, &owns); err != nil {
		return err
	}
	if isTemplate { // what is replaced, or made, could not be dropped
		return activities.Errorf(activities.Refused,
			"database %s: it is a template of the server (IS_TEMPLATE); take that from it, or change it without a checkpoint",
			c.Name)
	}
	if !able || !owns {
		return activities.Errorf(activities.Refused,
			"database %s: an undo makes a database beside this one, and the two exchange their names; the worker's role "+
				"must have CREATEDB, and be the owner of the database or a member of it", c.Name)
	}
	if err := checkDumped(c); err != nil {
		return err
	}
	others, err := server.Collect(c, pgx.RowTo[string],
		`SELECT DISTINCT owner::regrole::text FROM (SELECT relowner FROM pg_class WHERE oid >= $1 UNION SELECT proowner
			FROM pg_proc WHERE oid >= $1
		UNION SELECT nspowner FROM pg_namespace WHERE oid >= $1) o(owner)
		WHERE NOT pg_has_role(current_user, owner, 'MEMBER') ORDER BY 1`, server.FirstNormalObject)
	if err == nil && len(others) > 0 {
		err = activities.Errorf(activities.Refused,
			"database %s: things in it belong to %s; an undo would have to make them, so the worker's role must be a member "+
				"of these roles", c.Name, strings.Join(others, ", "))
	}
	return err
}

// checkDumped refuses where a dump would not hold all of the database.
func checkDumped(c *server.Connection) error {
	subscribed, err := server.Collect(c, pgx.RowTo[string],
		"SELECT subname::text FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = "+
			"current_database()) ORDER BY 1")
	if err != nil {
		return err
	}
	if len(subscribed) > 0 { // pg_dump leaves them out, or writes that they do nothing
		return activities.Errorf(activities.Refused,
			"database %s: it has the subscription %s, which a dump does not hold as it is; drop it first, or migrate "+
				"without a checkpoint", c.Name, strings.Join(subscribed, ", "))
	}
	hidden, err := server.Collect(c, pgx.RowTo[string],
		`SELECT pg_describe_object(class, id, 0) FROM (
			SELECT 'pg_class'::regclass, oid, relnamespace FROM pg_class WHERE relkind <> 'i'
			UNION ALL SELECT 'pg_proc'::regclass, oid, pronamespace FROM pg_proc
			UNION ALL SELECT 'pg_type'::regclass, oid, typnamespace FROM pg_type WHERE typrelid = 0 AND typelem = 0
			UNION ALL SELECT 'pg_operator'::regclass, oid, oprnamespace FROM pg_operator) o(class, id, schema)
		WHERE id >= $1 AND schema IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
			AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = class AND objid = id AND deptype = 'e') ORDER BY 1`,
		server.FirstNormalObject)
	if err == nil && len(hidden) > 0 {
		err = activities.Errorf(activities.Refused,
			"database %s: it has %s in a schema of the server, which a dump leaves out; move it to another schema, or migrate "+
				"without a checkpoint", c.Name, strings.Join(hidden, ", "))
	}
	return err
}
