package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// inPostgres is one step on tables of its own, in a schema of the one database that all tasks
// share.
type inPostgres struct {
	// Alters makes the step change the schema too: it drops a table, truncates one, makes one and adds
	// a column.
	Alters bool

	id     string
	schema string
}

func drawPostgres(r *rand.Rand) *inPostgres { return &inPostgres{Alters: r.IntN(3) == 0} }

// In these, $S stands for the schema.
const (
	postgresTables = `DROP SCHEMA IF EXISTS $S CASCADE; CREATE SCHEMA $S;
		CREATE TABLE $S.account (id int PRIMARY KEY, owner text NOT NULL UNIQUE, balance numeric NOT NULL DEFAULT 0);
		CREATE TABLE $S.entry (account int REFERENCES $S.account ON DELETE CASCADE, n int, PRIMARY KEY (account, n));
		CREATE TABLE $S.tally (id int PRIMARY KEY, n int); CREATE TABLE $S.spare (a text);
		CREATE TABLE $S.log (id int PRIMARY KEY, line text);
		CREATE FUNCTION $S.count() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN UPDATE $S.tally SET n = n + 1; RETURN NULL; END';
		CREATE TRIGGER counts AFTER UPDATE ON $S.account FOR EACH ROW EXECUTE FUNCTION $S.count();
		INSERT INTO $S.account SELECT g, 'owner ' || g, g * 10 FROM generate_series(1, 9) g;
		INSERT INTO $S.entry SELECT a, n FROM generate_series(1, 9) a, generate_series(1, 3) n;
		INSERT INTO $S.tally VALUES (1, 0); INSERT INTO $S.spare VALUES ('kept'), (NULL);
		INSERT INTO $S.log VALUES (1, 'begun'), (2, 'read')`
	postgresRows = `UPDATE $S.account SET balance = balance + 1 WHERE id < 4; DELETE FROM $S.account WHERE id = 4;
		INSERT INTO $S.account VALUES (10, 'new', 1)`
	// alterPostgres comes before postgresRows.
	alterPostgres = `TRUNCATE $S.log; DROP TABLE $S.spare; CREATE TABLE $S.made AS SELECT id, owner FROM $S.account;
		ALTER TABLE $S.account ADD age int; `
)

func (p *inPostgres) statements() string {
	if p.Alters {
		return alterPostgres + postgresRows
	}
	return postgresRows
}

// inSchema puts the name of a schema into statements.
func inSchema(schema, statements string) string {
	return strings.ReplaceAll(statements, "$S", schema)
}

// postgresServer is the server of a run.
type postgresServer struct {
	*postgrestest.Server

	// before and after are the dumps of a schema; after is that of twins in which the statements ran
	// without us, by whether they alter.
	before string
	after  map[bool]string
}

// The databases.
const (
	appDatabase  = "app"
	twinDatabase = "twin"
)

func (r *run) setPostgres(ctx context.Context) (err error) {
	p := &postgresServer{after: map[bool]string{}}
	if p.Server, err = postgrestest.Quick(); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { p.Stop(); return nil })
	r.postgres = p
	if err := p.run(ctx, p.Admin("postgres"), "CREATE DATABASE "+appDatabase+" OWNER "+postgrestest.Role,
		"CREATE DATABASE "+twinDatabase+" OWNER "+postgrestest.Role); err != nil {
		return err
	}
	const twin = "twin_schema"
	for _, alters := range []bool{false, true} {
		if err := p.run(ctx, p.DSN(twinDatabase), inSchema(twin, postgresTables)); err != nil {
			return err
		}
		if p.before, err = p.dump(twinDatabase, twin); err != nil {
			return err
		}
		if err := p.run(ctx, p.DSN(twinDatabase), inSchema(twin, (&inPostgres{Alters: alters}).statements())); err != nil {
			return err
		}
		if p.after[alters], err = p.dump(twinDatabase, twin); err != nil {
			return err
		}
	}
	const socket = ".s.PGSQL.5432"
	dir := filepath.Join(r.dir, "pg")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var dialer net.Dialer
	if err := r.serveDatabase("postgres", p, "unix", filepath.Join(dir, socket),
		func(ctx context.Context) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", filepath.Join(p.Dir, socket))
		}); err != nil {
		return err
	}
	dsn := filepath.Join(r.dir, "dsn")
	if err := os.WriteFile(dsn, []byte(strings.Replace(p.DSN(appDatabase), p.Dir, dir, 1)), 0o600); err != nil {
		return err
	}
	for _, m := range r.fleet.members {
		m.setSecret("APP_DSN", dsn)
		m.Config = m.With(&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{appDatabase: {DSN: "APP_DSN"}}})
	}
	return nil
}

// run runs each of some texts of statements in a transaction.
func (p *postgresServer) run(ctx context.Context, dsn string, texts ...string) error {
	return p.connected(ctx, dsn, func(conn *pgx.Conn) error {
		for _, each := range texts {
			if _, err := conn.Exec(ctx, each, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", each, err)
			}
		}
		return nil
	})
}

func (p *postgresServer) connected(ctx context.Context, dsn string, do func(*pgx.Conn) error) error {
	return insist(ctx, func() error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		return errors.Join(do(conn), conn.Close(ctx))
	})
}

// dump is all that a schema holds, under a name that all have.
func (p *postgresServer) dump(database, schema string) (string, error) {
	text, err := postgrestest.DumpSchema(p.DSN(database), schema)
	return strings.ReplaceAll(text, schema, "s"), err
}

// lingering are our connections to the database that are left over when all workers have ended.
func (p *postgresServer) lingering(ctx context.Context) (left []string, err error) {
	return untilNone(ctx, func() (left []string, err error) {
		err = p.connected(ctx, p.Admin(appDatabase), func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx,
				"SELECT format('connection %s of the server is left over: %s, %s', pid, application_name, query) FROM "+
					"pg_stat_activity WHERE application_name LIKE 'unwind%'")
			if err != nil {
				return err
			}
			left, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		return left, err
	})
}

func (p *inPostgres) name(n int) { p.id = fmt.Sprintf("postgres-%d", n) }

func (p *inPostgres) actions() []string { return []string{"postgres.exec"} }

func (p *inPostgres) firstStep() string { return p.id }

func (p *inPostgres) host() (int, bool) { return 0, false }

func (p *inPostgres) setUp(ctx context.Context, r *run, task string) error {
	p.schema = strings.ReplaceAll(task+"_"+p.id, "-", "_")
	return r.postgres.run(ctx, r.postgres.DSN(appDatabase), inSchema(p.schema, postgresTables))
}

func (p *inPostgres) steps() []map[string]any {
	return []map[string]any{{"id": p.id, "uses": "postgres.exec",
		"with": map[string]any{"database": appDatabase, "sql": inSchema(p.schema, p.statements())}}}
}

func (p *inPostgres) judgePart(ctx context.Context, r *run, e taskEnd) (v verdict, err error) {
	var now string
	if err := insist(ctx,
		func() (err error) { now, err = r.postgres.dump(appDatabase, p.schema); return err }); err != nil {
		return v, err
	}
	v.compareDumps(p.id, r.postgres.before, r.postgres.after[p.Alters], now, e)
	for _, token := range e.tokens(p.id) {
		left, err := p.leftOf(ctx, r, token, e.committed() && token == e.token(p.id))
		if err != nil {
			return v, err
		}
		v.Orphaned = append(v.Orphaned, left...)
	}
	return v, nil
}

// undefinedTable is the code of PostgreSQL's error for a table that is not there.
const undefinedTable = "42P01"

// leftOf is what a token has left in the journal of the database that should not be there, or lacks
// there.
func (p *inPostgres) leftOf(ctx context.Context, r *run, token string, kept bool) (left []string, err error) {
	err = r.postgres.connected(ctx, r.postgres.Admin(appDatabase), func(conn *pgx.Conn) error {
		var state string
		var held int
		err := conn.QueryRow(ctx,
			`SELECT state, (SELECT count(*) FROM pg_namespace WHERE nspname ~ ('^unwind_' || n || '_')) FROM unwind.record
				WHERE token = $1`, token).Scan(&state, &held)
		var refused *pgconn.PgError
		switch {
		case errors.Is(err, pgx.ErrNoRows), errors.As(err, &refused) && refused.Code == undefinedTable:
			if kept {
				left = []string{fmt.Sprintf("%s: token %s has no record, though its step is committed", p.id, token)}
			}
			return nil // otherwise it has never begun, and where there is no table, no other one either
		case err != nil:
			return err
		case !kept && (state == "applied" || held > 0):
			left = []string{fmt.Sprintf("%s: the record of token %s is %s, and holds %d schemas", p.id, token, state, held)}
		}
		return nil
	})
	return left, err
}

func (p *inPostgres) clear(ctx context.Context, r *run) error {
	return r.postgres.run(ctx, r.postgres.DSN(appDatabase), "DROP SCHEMA IF EXISTS "+p.schema+" CASCADE")
}

func (p *inPostgres) String() string { return fmt.Sprintf("%s: alters %v", p.id, p.Alters) }
