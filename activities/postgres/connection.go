package postgres

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// connection is a connection to a database, with what the world keeps there.
type connection struct{ *server.Connection }

// open connects for an entry. It returns WrongPlace where the entry's record is in another database
// than the one that has the name now.
func (w *world) open(ctx context.Context, e activities.Entry, database, purpose string) (*connection, error) {
	recorded := e.Place.JournalOf(database)
	if recorded == "" {
		if _, err := w.Databases.Find(database); err != nil {
			return nil, err
		}
		return nil, activities.Errorf(activities.WrongPlace,
			"the entry names no journal of database %s: it did not answer when the task was compiled, or the task belongs "+
				"to another worker", database)
	}
	to, err := w.Databases.Connect(ctx, database, purpose+" "+e.Token)
	if err != nil {
		return nil, err
	}
	c := &connection{to}
	if c.ID == recorded {
		return c, nil
	}
	continues, err := c.continues(recorded)
	if err != nil || !continues {
		c.Close()
		if err != nil {
			return nil, err
		}
		return nil, activities.Errorf(activities.WrongPlace,
			"the record is in database %s; what this worker's config calls %s is database %s", recorded, database, c.ID)
	}
	return c, nil
}

// rowJournals are the journals in the databases, for checkpoints of whole databases.
type rowJournals struct{ *world }

// Open implements checkpoint.RowJournals.
func (j rowJournals) Open(ctx context.Context, e activities.Entry, database, purpose string) (*server.Connection,
	error) {
	c, err := j.open(ctx, e, database, purpose)
	if err != nil {
		return nil, err
	}
	return c.Connection, nil
}

// Continues implements checkpoint.RowJournals.
func (rowJournals) Continues(c *server.Connection, id string) (bool, error) {
	return (&connection{c}).continues(id)
}

// TakeOver implements checkpoint.RowJournals.
func (rowJournals) TakeOver(replaced, restored *server.Connection) error {
	return (&connection{replaced}).takeOver(&connection{restored})
}
