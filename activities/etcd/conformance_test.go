package etcd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	code := actiontest.Main(m, cases...)
	testrun.StopServers()
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { actiontest.Run(t, c) })
	}
}

const canary = "canary 'value' of a secret"

var cases = []actiontest.Case{{
	Name: "txn", Action: "etcd.txn", Start: startApp, Open: openIn, Manifest: dumpIn,
	With: func(string) any {
		return map[string]any{
			"database": "main",
			"compare":  []any{map[string]any{"key": "leader", "exists": true}, map[string]any{"key": "made", "exists": false}},
			"put": []any{map[string]any{"key": "name", "value": canary}, map[string]any{"key": "made", "value": "one"},
				map[string]any{"key": "leader", "value": "b", "keep_lease": true}},
			"delete": []any{map[string]any{"key": "old"}, map[string]any{"key": "never"}, map[string]any{"prefix": "tmp/"},
				map[string]any{"from": "a", "to": "c"}},
		}
	},
	Next: func(string) any {
		return map[string]any{"database": "main", "put": []any{map[string]any{"key": "name", "value": "next"}},
			"delete": []any{map[string]any{"key": "made"}}}
	},
	Drift:     touch,
	Meanwhile: touch,
	Secret:    canary,
}}

// app is what a database holds before a step. The leader has a lease.
var app = map[string]string{"name": "old name", "old": "1", "tmp/1": "x", "tmp/2": "", "a": "first", "b": "\xff\x00",
	"c": "third", "leader": "a"}

// place is where a case has its keys, in a file of its folder: what a process that is started to be
// killed knows.
type place struct {
	Endpoint, Namespace string
}

func startApp(t testing.TB, dir string) {
	server := etcdtest.Need(t)
	p := place{server.Endpoint(), server.Namespace()}
	fill(t, server.Client(t), p.Namespace, app)
	raw, err := json.Marshal(p)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "place"), raw, 0o600))
}

func fill(t testing.TB, c *client.Client, namespace string, keys map[string]string) {
	t.Helper()
	for key, value := range keys {
		var options []client.OpOption
		if key == "leader" {
			lease, err := c.Grant(t.Context(), 100_000)
			require.NoError(t, err)
			options = append(options, client.WithLease(lease.ID))
		}
		_, err := c.Put(t.Context(), namespace+key, value, options...)
		require.NoError(t, err)
	}
}

func placeIn(dir string) (p place, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "place"))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(raw, &p)
}

func openIn(dir string) (activities.World, error) {
	p, err := placeIn(dir)
	if err != nil {
		return activities.World{}, err
	}
	return etcd.New(
		etcd.Config{Databases: map[string]etcd.Database{"main": {Endpoints: []string{p.Endpoint}, Namespace: p.Namespace}}})
}

func dumpIn(t testing.TB, dir string) string {
	p, err := placeIn(dir)
	require.NoError(t, err)
	dump, err := etcdtest.Dump(t.Context(), etcdtest.Need(t).Client(t), p.Namespace)
	require.NoError(t, err)
	return dump
}

func touch(t testing.TB, dir string) {
	p, err := placeIn(dir)
	require.NoError(t, err)
	c := etcdtest.Need(t).Client(t)
	r, err := c.Get(t.Context(), p.Namespace+"name")
	require.NoError(t, err)
	value := "+"
	for _, kv := range r.Kvs {
		value = string(kv.Value) + "+"
	}
	_, err = c.Put(t.Context(), p.Namespace+"name", value)
	require.NoError(t, err)
}
