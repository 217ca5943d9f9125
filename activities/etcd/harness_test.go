package etcd_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
)

// database is a namespace of a server with a world on it.
type database struct {
	testing.TB

	server    *etcdtest.Server
	client    *client.Client
	config    etcd.Database
	world     activities.World
	place     string
	namespace string
	steps     int
}

// newDatabase makes a database with keys.
func newDatabase(t testing.TB, keys map[string]string) *database {
	t.Helper()
	server := etcdtest.Need(t)
	return on(t, server, server.Namespace(), keys)
}

// on makes a database on a server.
func on(t testing.TB, server *etcdtest.Server, namespace string, keys map[string]string) *database {
	t.Helper()
	d := &database{TB: t, server: server, client: server.Client(t), namespace: namespace}
	fill(t, d.client, namespace, keys)
	d.limit(etcd.Database{})
	return d
}

// limit opens the world anew with what the config says of the database.
func (d *database) limit(c etcd.Database) {
	d.Helper()
	c.Endpoints, c.Namespace = []string{d.server.Endpoint()}, d.namespace
	d.open(c)
}

func (d *database) open(c etcd.Database) {
	d.Helper()
	d.config = c
	var err error
	d.world, err = etcd.New(etcd.Config{Databases: map[string]etcd.Database{"main": c}})
	require.NoError(d, err)
	d.place, err = d.world.Journal(context.Background())
	require.NoError(d, err)
}

// at opens the world through another address.
func (d *database) at(endpoint string) {
	d.Helper()
	c := d.config
	c.Endpoints = []string{endpoint}
	place := d.place
	d.open(c)
	require.Equal(d, place, d.place)
}

// step is a step of a task.
type step struct {
	*database

	entry activities.Entry
	with  activities.Step
}

func (s *step) action() activities.Action { return s.world.Actions[0] }

// txn is a step with parameters as YAML would give them.
func (d *database) txn(with string) *step {
	d.Helper()
	var all map[string]any
	require.NoError(d, json.Unmarshal([]byte(with), &all))
	if all["database"] == nil {
		all["database"] = "main"
	}
	raw, err := json.Marshal(all)
	require.NoError(d, err)
	d.steps++
	params, err := d.world.Actions[0].Spec().EntryParams(raw)
	require.NoError(d, err)
	return &step{database: d, with: activities.Step{ID: "step", With: raw}, entry: activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "step", Action: "etcd.txn", UndoType: "etcd.txn.undo", Params: params,
		Token: activities.NewToken(d.namespace, "step", d.steps), Place: activities.Place{Queue: "queue", Journal: d.place},
	}}
}

func (s *step) plan() activities.Change {
	s.Helper()
	c, err := s.action().Plan(s.Context(), s.entry, s.with)
	require.NoError(s, err)
	return c
}

func (s *step) apply() activities.Result {
	s.Helper()
	r, err := s.action().Apply(s.Context(), s.entry, s.with, "")
	require.NoError(s, err)
	return r
}

// fails requires that both plan and apply fail alike, and change nothing.
func (s *step) fails(kind activities.ErrorType, want string) {
	s.Helper()
	before := s.dump()
	_, err := s.action().Plan(s.Context(), s.entry, s.with)
	require.ErrorContains(s, err, want)
	require.Equal(s, kind, activities.TypeOf(err), err)
	_, err = s.action().Apply(s.Context(), s.entry, s.with, "")
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
	u, err := s.action().Undo(s.Context(), s.entry, d)
	require.NoError(s, err)
	require.Equal(s, want, u.Outcome, "%+v", u)
	return u
}

func (s *step) sees(want activities.State) {
	s.Helper()
	o, err := s.action().Observe(s.Context(), s.entry)
	require.NoError(s, err)
	require.Equal(s, want, o.State, "%+v", o)
}

func (d *database) put(key, value string, options ...client.OpOption) {
	d.Helper()
	_, err := d.client.Put(d.Context(), d.namespace+key, value, options...)
	require.NoError(d, err)
}

func (d *database) remove(key string) {
	d.Helper()
	_, err := d.client.Delete(d.Context(), d.namespace+key)
	require.NoError(d, err)
}

// grant makes a lease.
func (d *database) grant(seconds int64) client.LeaseID {
	d.Helper()
	lease, err := d.client.Grant(d.Context(), seconds)
	require.NoError(d, err)
	return lease.ID
}

func (d *database) dump() string {
	d.Helper()
	dump, err := etcdtest.Dump(d.Context(), d.client, d.namespace)
	require.NoError(d, err)
	return dump
}
