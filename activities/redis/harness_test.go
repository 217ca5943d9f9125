package redis_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
)

// database is a logical database with a world on it.
type database struct {
	testing.TB

	server *redistest.Server
	client *client.Client
	url    string
	world  activities.World
	place  string
	state  string // the worker's folder
	steps  int
}

// newDatabase makes a database by commands, each in one line.
func newDatabase(t testing.TB, lines ...string) *database {
	t.Helper()
	return on(t, redistest.Need(t), lines...)
}

// on makes a database on a server.
func on(t testing.TB, server *redistest.Server, lines ...string) *database {
	t.Helper()
	number := 0
	if server == redistest.Need(t) {
		number = server.Database()
	}
	d := &database{TB: t, server: server, client: server.Client(number), url: server.URL(number), state: t.TempDir()}
	t.Cleanup(func() { _ = d.client.Close() })
	d.run(lines...)
	d.limit(redis.Database{})
	return d
}

// limit opens the world anew with what the config says of the database.
func (d *database) limit(limits redis.Database) {
	d.Helper()
	limits.URL = func() (string, error) { return d.url, nil }
	var err error
	d.world, err = redis.New(redis.Config{State: d.state, Databases: map[string]redis.Database{"main": limits}})
	require.NoError(d, err)
	d.place, err = d.world.Journal(context.Background())
	require.NoError(d, err)
}

// step is a step of a task.
type step struct {
	*database

	action activities.Action
	entry  activities.Entry
	with   activities.Step
}

// exec is a step that runs commands, each in one line.
func (d *database) exec(lines ...string) *step {
	d.Helper()
	all := [][]string{}
	for _, line := range lines {
		all = append(all, strings.Fields(line))
	}
	return d.step(map[string]any{"database": "main", "commands": all})
}

func (d *database) step(with map[string]any) *step { return d.stepOf("redis.exec", with) }

// stepOf is a step of any action.
func (d *database) stepOf(action string, with map[string]any) *step {
	d.Helper()
	raw, err := json.Marshal(with)
	require.NoError(d, err)
	d.steps++
	s := &step{database: d, with: activities.Step{ID: "step", With: raw}, action: actionOf(d.world, action)}
	params, err := s.action.Spec().EntryParams(raw)
	require.NoError(d, err)
	s.entry = activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "step", Action: action, UndoType: action + ".undo",
		Params: params,
		Token:  activities.NewToken(d.url, "step", d.steps), Place: activities.Place{Queue: "queue", Journal: d.place},
	}
	return s
}

func (s *step) plan() activities.Change {
	s.Helper()
	c, err := s.action.Plan(s.Context(), s.entry, s.with)
	require.NoError(s, err)
	return c
}

func (s *step) apply() activities.Result {
	s.Helper()
	r, err := s.action.Apply(s.Context(), s.entry, s.with, "")
	require.NoError(s, err)
	return r
}

// fails requires that both plan and apply fail alike, and change nothing.
func (s *step) fails(kind activities.ErrorType, want string) {
	s.Helper()
	before := s.dump()
	_, err := s.action.Plan(s.Context(), s.entry, s.with)
	require.ErrorContains(s, err, want)
	require.Equal(s, kind, activities.TypeOf(err), err)
	_, err = s.action.Apply(s.Context(), s.entry, s.with, "")
	require.ErrorContains(s, err, want)
	require.Equal(s, kind, activities.TypeOf(err), err)
	require.Equal(s, before, s.dump())
}

func (s *step) undo(want activities.Outcome) activities.Undone {
	s.Helper()
	return s.decide(activities.Decision{Done: true}, want)
}

func (s *step) decide(d activities.Decision, want activities.Outcome) activities.Undone {
	s.Helper()
	u, err := s.action.Undo(s.Context(), s.entry, d)
	require.NoError(s, err)
	require.Equal(s, want, u.Outcome, "%+v", u)
	return u
}

func (s *step) sees(want activities.State) {
	s.Helper()
	o, err := s.action.Observe(s.Context(), s.entry)
	require.NoError(s, err)
	require.Equal(s, want, o.State, "%+v", o)
}

func (d *database) run(lines ...string) {
	d.Helper()
	redistest.Run(d, d.client, lines...)
}

func (d *database) dump() string {
	d.Helper()
	dump, err := redistest.Dump(d.Context(), d.client)
	require.NoError(d, err)
	return dump
}

// now is the time of the server since 1970.
func (d *database) now() time.Duration {
	d.Helper()
	at, err := d.client.Time(d.Context()).Result()
	require.NoError(d, err)
	return time.Duration(at.UnixNano())
}
