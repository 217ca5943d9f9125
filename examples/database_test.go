package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

const shop = `
CREATE TABLE price (sku TEXT PRIMARY KEY, kind TEXT, euros REAL);
CREATE TRIGGER no_free_lunch BEFORE UPDATE ON price WHEN new.euros = 0 BEGIN SELECT RAISE(ABORT, 'free'); END;
INSERT INTO price VALUES ('a', 'book', 12.5), ('b', 'book', 7), ('c', 'discontinued', NULL);
DELETE FROM price WHERE sku = 'b';
INSERT INTO price VALUES ('d', 'pen', 1.99);
`

// TestAMigrationThatFailsLeavesTheDatabaseAsItWas compares what SQLite's own program dumps.
func TestAMigrationThatFailsLeavesTheDatabaseAsItWas(t *testing.T) {
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	source, err := os.ReadFile("database/migrate-prices.yaml")
	require.NoError(t, err)
	data, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	query := sqliteIn(t, filepath.Join(data, "shop.db"))
	query(shop)
	require.NoError(t, os.WriteFile(filepath.Join(data, "shop.conf"), []byte("price_column = euros\n"), 0o600))
	before := query(".dump --preserve-rowids")

	p := dial(t, t.Name())
	p.work(host.Config{
		Host: "shop", Queue: p.queue, State: t.TempDir(), StopTimeout: time.Second,
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{data}}, &sqlite.Settings{Roots: []string{data}}},
	})
	_, err = p.start(p.id(), p.document(source, map[string]any{"data": data}))
	require.NoError(t, err)
	r, err := p.end(p.id())
	require.ErrorContains(t, err, "it changes 1 row, and changes says 2")
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t,
		[]string{"count nothing-to-undo", "widen restored", "backfill restored", "configure restored",
			"retire nothing-to-undo"}, outcomes(r))
	require.Equal(t, before, query(".dump --preserve-rowids"))
	conf, err := os.ReadFile(filepath.Join(data, "shop.conf"))
	require.NoError(t, err)
	require.Equal(t, "price_column = euros\n", string(conf))
}

// TestAMigrationOfTwoServicesIsAllOrNothing runs the task where the services disagree about one
// customer, and then where they agree.
func TestAMigrationOfTwoServicesIsAllOrNothing(t *testing.T) {
	testrun.NeedProgram(t, "sqlite3", "install the package sqlite3")
	server, caches := postgrestest.Need(t), redistest.Need(t)
	billing := server.Database(t,
		`CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL UNIQUE, paid int NOT NULL,
			closed bool NOT NULL DEFAULT false);
		CREATE TABLE invoice (id int PRIMARY KEY, customer int REFERENCES customer ON DELETE CASCADE, cents int);
		INSERT INTO customer VALUES (1, 'Ann', 25000, false), (2, 'Bob', 9900, false), (3, 'Cy', 12000, false), (4, 'Dee', 0,
		true);
		INSERT INTO invoice VALUES (1, 1, 25000), (2, 4, 100), (3, 4, 300)`)
	source, err := os.ReadFile("database/migrate-tiers.yaml")
	require.NoError(t, err)
	data, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	shop := sqliteIn(t, filepath.Join(data, "shop.db"))
	shop(`CREATE TABLE customer (id INTEGER PRIMARY KEY, spent INTEGER);
		INSERT INTO customer VALUES (1, 25000), (2, 10100), (3, 12000);`)
	conf := filepath.Join(data, "shop.conf")
	require.NoError(t, os.WriteFile(conf, []byte("tiers = off\n"), 0o600))
	number := caches.Database()
	cache := caches.Client(number)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	require.NoError(t, cache.MSet(t.Context(), "customers", "1,2,3", "session:9", "not ours").Err())
	require.NoError(t, cache.HSet(t.Context(), "customer:1", "name", "Ann", "spent", 25000).Err())
	require.NoError(t, cache.Expire(t.Context(), "customer:1", time.Hour).Err())
	secrets := map[string]string{}
	for name, value := range map[string]string{"BILLING": server.DSN(billing), "CACHE": caches.URL(number)} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(value), 0o600))
		secrets[name] = "file:" + file
	}
	look := func() []string {
		dump, err := postgrestest.DumpSchema(server.Admin(billing), "public")
		require.NoError(t, err)
		said, err := os.ReadFile(conf)
		require.NoError(t, err)
		cached, err := redistest.Dump(t.Context(), cache)
		require.NoError(t, err)
		return []string{dump, shop(".dump --preserve-rowids"), string(said), cached}
	}
	before := look()

	p := dial(t, t.Name())
	p.work(host.Config{
		Host: "shop", Queue: p.queue, State: t.TempDir(), StopTimeout: time.Second, Secrets: secrets,
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{data}}, &sqlite.Settings{Roots: []string{data}},
			&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{"billing": {DSN: "BILLING"}}},
			&redis.Settings{Databases: map[string]redis.DatabaseSettings{"cache": {URL: "CACHE"}}},
		},
	})
	doc := p.document(source, map[string]any{"data": data})
	_, err = p.start("disagree", doc)
	require.NoError(t, err)
	r, err := p.end("disagree")
	require.ErrorContains(t, err, "check 1 (query, staged)")
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{
		"billing-schema restored", "billing-backfill restored", "billing-gold nothing-to-undo", "shop-schema restored",
		"shop-backfill restored", "configure restored", "flush restored", "compare nothing-to-undo",
	}, outcomes(r))
	require.Equal(t, before, look())

	shop("UPDATE customer SET spent = 9900 WHERE id = 2")
	_, err = p.start("agree", doc)
	require.NoError(t, err)
	r, err = p.end("agree")
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, r.Status)
	require.Equal(t, "1|gold\n2|basic\n3|gold\n", shop("SELECT id, tier FROM customer"))
	require.NotContains(t, look()[0], "Dee")
	require.Equal(t, []string{"session:9", "tiers", "unwind:journal"},
		slices.Sorted(slices.Values(cache.Keys(t.Context(), "*").Val())))
}

// sqliteIn runs scripts on a database by SQLite's own program.
func sqliteIn(t *testing.T, path string) func(script string) string {
	return func(script string) string {
		c := exec.Command("sqlite3", "-bail", path)
		c.Stdin = strings.NewReader(script)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
}
