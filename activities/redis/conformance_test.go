package redis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
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

var cases = append(wholeCases, actiontest.Case{
	Name: "exec", Action: "redis.exec", Start: startShop, Open: openIn, Manifest: dumpIn,
	With: func(string) any {
		return map[string]any{"database": "main", "commands": []any{
			[]any{"SET", "name", canary}, []any{"INCRBY", "visits", 5}, []any{"DEL", "session:1", "session:9"},
			[]any{"PERSIST", "session:2"},
			[]any{"HSET", "user", "age", 32, "town", "Rome"}, []any{"RPUSH", "queue", "c"}, []any{"SADD", "made", "one"},
			[]any{"ZINCRBY", "rank", 1.5, "ann"}, []any{"XADD", "log", "5-1", "what", "happened"}, []any{"SUNIONSTORE", "all",
				"tags", "made"},
		}}
	},
	Next: func(string) any {
		return map[string]any{"database": "main",
			"commands": []any{[]any{"HDEL", "user", "age"}, []any{"APPEND", "visits", "0"}}}
	},
	Drift:     visit,
	Meanwhile: visit,
	Secret:    canary,
})

// wholeCases are those of actions on a database as a whole.
var wholeCases = []actiontest.Case{
	{
		Name: "restore", Action: "redis.restore", Start: startWithCheckpoints, Open: openWhole, Manifest: dumpIn, Anew: true,
		With:  func(string) any { return map[string]any{"database": "main", "checkpoint": checkpointNamed("one")} },
		Next:  func(string) any { return map[string]any{"database": "main", "checkpoint": checkpointNamed("two")} },
		Drift: visit, Meanwhile: visit,
	},
	{
		Name: "checkpoint", Action: "redis.checkpoint", Start: startShop, Open: openWhole, Lapses: true, Anew: true,
		With: func(string) any { return map[string]any{"database": "main"} },
		Next: func(string) any { return map[string]any{"database": "again"} },
		Manifest: func(t testing.TB, dir string) string {
			all, err := filepath.Glob(filepath.Join(dir, "state", "checkpoints", "*"))
			require.NoError(t, err)
			return fmt.Sprintf("%s%d checkpoints", dumpIn(t, dir), len(all))
		},
	},
}

// startWithCheckpoints makes a database that has changed since each of two checkpoints.
func startWithCheckpoints(t testing.TB, dir string) {
	startShop(t, dir)
	keepAs(t, dir, "one")
	redistest.Run(t, clientIn(t, dir), "DEL user", "RPUSH queue c", "SET made 1 EX 100000", "PERSIST session:1")
	keepAs(t, dir, "two")
	redistest.Run(t, clientIn(t, dir), "DEL log tags", "SET tags text", "XADD user 1-1 a b", "INCR visits", "EXPIRE rank 5000")
}

func tokenNamed(name string) string { return activities.NewToken("start", name, 0) }

func checkpointNamed(name string) string { return "cp-" + tokenNamed(name) }

// keepAs takes a checkpoint with a name.
func keepAs(t testing.TB, dir, name string) {
	w, err := openWhole(dir)
	require.NoError(t, err)
	place, err := w.Journal(t.Context())
	require.NoError(t, err)
	with := []byte(`{"database": "main"}`)
	e := activities.Entry{Token: tokenNamed(name), Action: "redis.checkpoint", Params: with,
		Place: activities.Place{Journal: place}}
	r, err := actionOf(w, e.Action).Apply(t.Context(), e, activities.Step{ID: name, With: with}, "")
	require.NoError(t, err)
	require.Equal(t, checkpointNamed(name), r.Outputs["checkpoint"])
}

func actionOf(w activities.World, name string) activities.Action {
	return w.Actions[slices.IndexFunc(w.Actions, func(a activities.Action) bool { return a.Spec().Name == name })]
}

// shop is a database with a key of each type, two of which expire.
var shop = []string{
	"SET visits 10", "SET session:1 a EX 100000", "SET session:2 b EX 200000", "HSET user name Ann age 31",
	"RPUSH queue a b", "SADD tags x y 3",
	"ZADD rank 1 ann 2 bob", "XADD log 1-1 a b", "XADD log 1-2 c d", "XGROUP CREATE log readers 0",
	"XREADGROUP GROUP readers one COUNT 1 STREAMS log >",
}

func startShop(t testing.TB, dir string) {
	server := redistest.Need(t)
	number := server.Database()
	c := server.Client(number)
	defer c.Close()
	redistest.Run(t, c, shop...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "url"), []byte(server.URL(number)), 0o600))
}

func urlIn(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "url"))
	return string(raw), err
}

func openIn(dir string) (activities.World, error) {
	return redis.New(redis.Config{Databases: map[string]redis.Database{
		"main": {URL: func() (string, error) { return urlIn(dir) }},
	}})
}

// openWhole opens a world that keeps checkpoints, with a database that has two names.
func openWhole(dir string) (activities.World, error) {
	shop := redis.Database{URL: func() (string, error) { return urlIn(dir) }}
	return redis.New(redis.Config{State: filepath.Join(dir, "state"),
		Databases: map[string]redis.Database{"main": shop, "again": shop}})
}

func clientIn(t testing.TB, dir string) *client.Client {
	t.Helper()
	url, err := urlIn(dir)
	require.NoError(t, err)
	options, err := client.ParseURL(url)
	require.NoError(t, err)
	c := client.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dumpIn(t testing.TB, dir string) string {
	dump, err := redistest.Dump(t.Context(), clientIn(t, dir))
	require.NoError(t, err)
	return dump
}

func visit(t testing.TB, dir string) { redistest.Run(t, clientIn(t, dir), "INCR visits") }
