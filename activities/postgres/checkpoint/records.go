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
func (a *Action) Records() activities.Records {
	return records{folder{Journal: a.Journal}, a.Databases}
}

type folder = journal.Records

// records implements activities.Records over the folder of checkpoints.
type records struct {
	folder

	databases server.Databases
}

// Records lists them. A checkpoint that was restored also takes the room of the database that it
// replaced.
func (r records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	all, problems, err = r.folder.Records(ctx)
	if slices.ContainsFunc(all, func(r activities.Record) bool { return r.State == activities.RecordUndone }) {
		sizes, bad := r.sizesOfKept(ctx)
		problems = append(problems, bad...)
		for i, r := range all {
			all[i].Bytes += sizes[keptPrefix+r.Entry.Token]
		}
	}
	return all, problems, err
}

// sizesOfKept returns how many bytes the databases that were replaced take on their servers, by
// their names.
func (r records) sizesOfKept(ctx context.Context) (sizes map[string]int64, problems []error) {
	sizes = map[string]int64{}
	problems = r.databases.Each(ctx, server.RecordsName, func(c *server.Connection) error {
		rows, err := c.Query(c.Ctx,
			"SELECT datname::text, pg_database_size(oid) FROM pg_database WHERE starts_with(datname, $1)", keptPrefix)
		if err != nil {
			return c.Explain(err)
		}
		var name string
		var size int64
		_, err = pgx.ForEachRow(rows, []any{&name, &size}, func() error {
			sizes[name] = size
			return nil
		})
		return c.Explain(err)
	})
	return sizes, problems
}
