package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// BenchmarkWholeDatabase takes a checkpoint of a database of 100 MB, restores it, and takes that
// back, on a server that keeps its work through a crash.
func BenchmarkWholeDatabase(b *testing.B) {
	postgrestest.Need(b)
	server, err := postgrestest.Start()
	require.NoError(b, err)
	b.Cleanup(server.Stop)
	server.Exec(b, server.Admin("postgres"), "CREATE ROLE "+keeper+" LOGIN CREATEDB IN ROLE "+postgrestest.Role)
	for _, as := range []string{"dump", "copy"} {
		b.Run(as, func(b *testing.B) {
			d := &database{t: b, server: server, name: server.Database(b, `CREATE TABLE item (id int PRIMARY KEY, owner text,
				note text); INSERT INTO item SELECT g, md5(g::text), repeat(md5((g * 7)::text), 3) FROM generate_series(1, 500000) g;
				CREATE INDEX ON item (owner)`)}
			d.dsn = fmt.Sprintf("host=%s user=%s dbname=%s", server.Dir, keeper, d.name)
			d.keepCheckpoints(postgres.Database{})
			b.Logf("the database has %s bytes", d.value("SELECT pg_database_size(current_database())"))
			took := map[string]time.Duration{}
			phase := func(name string, do func()) {
				began := time.Now()
				do()
				took[name] += time.Since(began)
			}
			n := 0
			for b.Loop() {
				n++
				cp := d.checkpointAs(as)
				phase("checkpoint", func() { cp.apply() })
				d.run("UPDATE item SET note = 'changed' WHERE id < 1000")
				s := d.restore(cp)
				phase("restore", func() { s.apply() })
				phase("undo", func() { s.undo(activities.Restored) })
				require.NoError(b, s.action.Release(b.Context(), s.entry))
				require.NoError(b, cp.action.Release(b.Context(), cp.entry))
			}
			for name, each := range took {
				b.ReportMetric(float64(each.Milliseconds())/float64(n), "ms/"+name)
			}
		})
	}
}
