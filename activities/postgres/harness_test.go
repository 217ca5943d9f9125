package postgres_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// database is a database with a world on it.
type database struct {
	t      testing.TB
	server *postgrestest.Server
	name   string
	dsn    string
	world  activities.World
	place  string
	state  string // where checkpoints are kept, if they are
	steps  int
}

// newDatabase makes a database by statements, run as the plain role that the world works as.
func newDatabase(t testing.TB, statements ...string) *database {
	t.Helper()
	server := postgrestest.Need(t)
	d := &database{t: t, server: server, name: server.Database(t, statements...)}
	d.dsn = server.DSN(d.name)
	d.limit(postgres.Database{})
	return d
}

// limit opens the world anew with what the config says of the database.
func (d *database) limit(limits postgres.Database) {
	d.t.Helper()
	limits.DSN = func() (string, error) { return d.dsn, nil }
	var err error
	d.world, err = postgres.New(postgres.Config{Databases: map[string]postgres.Database{"main": limits}})
	require.NoError(d.t, err)
	d.place, err = d.world.Journal(context.Background())
	require.NoError(d.t, err)
}

// step is a step of a task.
type step struct {
	*database

	action activities.Action
	entry  activities.Entry
	with   activities.Step
}

// exec is a step of postgres.exec: statements without parameters.
func (d *database) exec(statements ...string) *step {
	var all []map[string]any
	for _, s := range statements {
		all = append(all, map[string]any{"sql": s})
	}
	return d.step("postgres.exec", map[string]any{"database": "main", "statements": all})
}

func (d *database) step(action string, with map[string]any) *step {
	d.t.Helper()
	raw, err := json.Marshal(with)
	require.NoError(d.t, err)
	d.steps++
	s := &step{database: d, with: activities.Step{ID: "step", With: raw}}
	for _, a := range d.world.Actions {
		if a.Spec().Name == action {
			s.action = a
		}
	}
	params, err := s.action.Spec().EntryParams(raw)
	require.NoError(d.t, err)
	s.entry = activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "step", Action: action, UndoType: action + ".undo", Params: params,
		Token: activities.NewToken(d.name, "step", d.steps), Place: activities.Place{Queue: "queue", Journal: d.place},
	}
	return s
}

func (s *step) plan() activities.Change {
	s.t.Helper()
	c, err := s.action.Plan(s.t.Context(), s.entry, s.with)
	require.NoError(s.t, err)
	return c
}

func (s *step) apply() activities.Result {
	s.t.Helper()
	r, err := s.action.Apply(s.t.Context(), s.entry, s.with, "")
	require.NoError(s.t, err)
	return r
}

func (s *step) refused(want string) {
	s.t.Helper()
	_, err := s.action.Plan(s.t.Context(), s.entry, s.with)
	require.ErrorContains(s.t, err, want)
	require.Equal(s.t, activities.Refused, activities.TypeOf(err), err)
	_, err = s.action.Apply(s.t.Context(), s.entry, s.with, "")
	require.ErrorContains(s.t, err, want)
	require.Equal(s.t, activities.Refused, activities.TypeOf(err), err)
}

func (s *step) undo(want activities.Outcome) activities.Undone {
	s.t.Helper()
	return s.decide(activities.Decision{Done: true}, want)
}

func (s *step) decide(d activities.Decision, want activities.Outcome) activities.Undone {
	s.t.Helper()
	u, err := s.action.Undo(s.t.Context(), s.entry, d)
	require.NoError(s.t, err)
	require.Equal(s.t, want, u.Outcome, "%+v", u)
	return u
}

func (d *database) dump() string {
	d.t.Helper()
	return postgrestest.Dump(d.t, d.server.Admin(d.name))
}

// wholeDump is the dump with the schema, without the positions of sequences.
func (d *database) wholeDump() string {
	d.t.Helper()
	return postgrestest.DumpAll(d.t, d.server.Admin(d.name))
}

func (d *database) run(statements ...string) {
	d.t.Helper()
	postgrestest.Exec(d.t, d.dsn, statements...)
}

func (d *database) asAdmin(statements ...string) {
	d.t.Helper()
	postgrestest.Exec(d.t, d.server.Admin(d.name), statements...)
}

// value is the first value of a query, as text.
func (d *database) value(sql string) string {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var v string
	require.NoError(d.t, conn.QueryRow(d.t.Context(), "SELECT ("+sql+")::text").Scan(&v))
	return v
}
