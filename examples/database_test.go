package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	sqlite := func(script string) string {
		c := exec.Command("sqlite3", "-bail", filepath.Join(data, "shop.db"))
		c.Stdin = strings.NewReader(script)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	sqlite(shop)
	require.NoError(t, os.WriteFile(filepath.Join(data, "shop.conf"), []byte("price_column = euros\n"), 0o600))
	before := sqlite(".dump --preserve-rowids")

	p := dial(t, t.Name())
	p.work(host.Config{
		Host: "shop", Queue: p.queue, State: t.TempDir(), StopTimeout: time.Second,
		File: &host.FileConfig{Roots: []string{data}}, SQLite: &host.SQLiteConfig{Roots: []string{data}},
	})
	_, err = p.start(p.id(), p.document(source, map[string]any{"data": data}))
	require.NoError(t, err)
	r, err := p.end(p.id())
	require.ErrorContains(t, err, "it changes 1 row, and changes says 2")
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{"count nothing-to-undo", "widen restored", "backfill restored", "configure restored", "retire nothing-to-undo"}, outcomes(r))
	require.Equal(t, before, sqlite(".dump --preserve-rowids"))
	conf, err := os.ReadFile(filepath.Join(data, "shop.conf"))
	require.NoError(t, err)
	require.Equal(t, "price_column = euros\n", string(conf))
}
