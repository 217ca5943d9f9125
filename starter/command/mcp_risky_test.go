package command

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// shop is a database of three customers, and how many there are.
func (d *desk) shop(root string) (path string, customers func() int) {
	d.Helper()
	path = filepath.Join(root, "shop.db")
	conn, err := sqlite.OpenConn(path)
	require.NoError(d, err)
	d.Cleanup(func() { _ = conn.Close() })
	require.NoError(d,
		sqlitex.ExecuteScript(conn,
			"CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO customer (name) VALUES ('Ann'), "+
				"('Bo'), ('Cy')", nil))
	return path, func() (n int) {
		d.Helper()
		require.NoError(d, sqlitex.Execute(conn, "SELECT count(*) FROM customer", &sqlitex.ExecOptions{
			ResultFunc: func(row *sqlite.Stmt) error { n = row.ColumnInt(0); return nil },
		}))
		return n
	}
}

// serveShop starts a worker that serves SQLite databases below a folder.
func (d *desk) serveShop(root string, gates activities.Floors) {
	d.stopWorker()
	d.startWorker(func(c *host.Config) {
		c.Gates, c.Worlds = gates,
			c.With(&world.Settings{Roots: []string{root}}).Worlds
	})
}

func TestADeletionOfAllThatAnAgentAsksForWaitsForAPerson(t *testing.T) {
	d := newDesk(t)
	root := t.TempDir()
	path, customers := d.shop(root)
	d.serveShop(root, nil)
	a := d.newAgent(nil, "--wait", "100ms")
	run := func(session, request, sql string) arguments {
		return arguments{"session": session, "request": request, "with": map[string]any{"database": path, "sql": sql}}
	}

	s := a.open()
	one := a.does("sqlite_exec", run(s, "one", "DELETE FROM customer WHERE name = 'Cy'"))
	require.Equal(t, "done", one.Steps[0].State, "what is not of high risk asks nobody")
	waits := a.does("sqlite_exec", run(s, "all", "DELETE FROM customer"))
	require.True(t, waits.Pending)
	require.Equal(t, "high", waits.Steps[0].Gate.Change.Risk)
	require.Equal(t, "its risk is high", waits.Steps[0].Gate.Why)
	require.Contains(t, waits.Steps[0].Gate.Change.Facts, "DELETE without WHERE")
	require.Equal(t, 2, customers())
	d.ok("reject", idIn(s), "s2", "--why", "they are customers")
	d.until(idIn(s), func(s protocol.State) bool { return s.Steps[1].State == protocol.RolledBack })
	require.Equal(t, 2, customers(), "rejected, nothing of it was done")

	s = a.open()
	all := run(s, "all", "DELETE FROM customer")
	require.True(t, a.does("sqlite_exec", all).Pending)
	d.ok("approve", idIn(s), "s1", "--yes")
	require.Eventually(t, func() bool { return !a.does("sqlite_exec", all).Pending }, waitFor, tick)
	require.Zero(t, customers(), "approved, it runs as it was approved")
}

func TestAFloorOfTheWorkerOutranksTheTaskFile(t *testing.T) {
	d := newDesk(t)
	root := t.TempDir()
	path, customers := d.shop(root)
	d.serveShop(root, activities.Floors{"sqlite.exec": activities.Always})
	file := d.file("name: clear\nsteps:\n  - {id: clear, uses: sqlite.exec, gate: none, with: {database: " + path +
		", sql: DELETE FROM customer WHERE id = 1}}\n")
	require.Contains(t, d.ok("plan", file),
		`asks      a person, because the worker's config says gates: {"sqlite.exec": always}`)
	d.ok("run", file, "--id", t.Name())
	gates := d.until(t.Name(), atGate).Gates
	require.Contains(t, gates[0].Why, "the worker's config says gates")
	require.Equal(t, 3, customers())
	d.ok("approve", t.Name(), "clear", "--yes")
	d.ok("watch", t.Name())
	require.Equal(t, 2, customers())
}

func TestAPlanSaysThatItAsksWhereItsRiskIsHigh(t *testing.T) {
	d := newDesk(t)
	root := t.TempDir()
	path, customers := d.shop(root)
	d.serveShop(root, nil)
	task := "name: clear\nsteps:\n  - {id: clear, uses: sqlite.exec, with: {database: " + path + ", sql: "
	require.Regexp(t, `risk      high: DELETE without WHERE.*\n(.*\n)*  asks      a person, because its risk is high`,
		d.ok("plan", d.file(task+"DELETE FROM customer}}\n")))
	require.Regexp(t, `risk      medium.*\n(.*\n)*  asks      nobody`,
		d.ok("plan", d.file(task+"DELETE FROM customer WHERE id = 1}}\n")))
	require.Equal(t, 3, customers())
}
