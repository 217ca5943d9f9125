package environment

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// records lists the records of the world. It says of each rollback whether there was anything to put
// back.
type records struct {
	kept

	world *world
}

// kept are the records of the journal; an embedded field cannot have the name of the method.
type kept = journal.Records

// Records implements activities.Records.
func (r records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	all, problems, err = r.kept.Records(ctx)
	for i := range all {
		var rec record
		t, failed := r.world.journal.Token(all[i].Entry.Token) // an entry of no record names no journal
		if failed == nil {
			_, failed = t.Read(journal.Record, &rec)
		}
		if failed != nil {
			problems = append(problems, failed)
			continue
		}
		all[i].Unchanged = rec.Same
	}
	return all, problems, err
}
