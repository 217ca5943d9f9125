package checkpoint

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Records are those of checkpoints.
func (s *Checkpoints) Records() activities.Records {
	return records{folder{Journal: s.Journal}, s.Databases}
}

type folder = journal.Records

// records implements activities.Records over the folder of checkpoints.
type records struct {
	folder

	databases server.Databases
}

// Records lists them. A step may also take the room of databases that it has made or replaced.
func (r records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	all, problems, err = r.folder.Records(ctx)
	if slices.ContainsFunc(all, func(r activities.Record) bool { return r.State != activities.RecordReleased }) {
		sizes, bad := r.sizes(ctx)
		problems = append(problems, bad...)
		for i, r := range all {
			all[i].Bytes += sizes[r.Entry.Token]
		}
	}
	return all, problems, err
}

// sizes returns how many bytes the databases of tokens take on their servers.
func (r records) sizes(ctx context.Context) (sizes map[string]int64, problems []error) {
	sizes = map[string]int64{}
	counted := map[string]bool{} // the config may name a server several times
	problems = r.databases.Each(ctx, server.RecordsName, func(c *server.Connection) error {
		rows, err := c.Query(c.Ctx, `SELECT datname::text, substring(datname FROM '^unwind_[a-z]+_([0-9a-f]+)'),
			coalesce(pg_database_size(oid), 0) FROM pg_database WHERE datname ~ '^unwind_(checkpoint|kept|undone)_[0-9a-f]+$'`)
		if err != nil {
			return c.Explain(err)
		}
		var name, token string
		var size int64
		_, err = pgx.ForEachRow(rows, []any{&name, &token, &size}, func() error {
			if !counted[name] {
				sizes[token] += size
			}
			counted[name] = true
			return nil
		})
		return c.Explain(err)
	})
	return sizes, problems
}
