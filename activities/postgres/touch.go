package postgres

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
)

// Touches names the database by its server and number: the config may call one by two names.
func (a *execAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := decode[execParams](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.touch(ctx, p.Database, false)
}

// Touches names the database in the same way.
func (a *queryAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := decode[queryParams](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.touch(ctx, p.Database, true)
}

// Touches names the database in the same way: an undo replaces it.
func (a *checkpointAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[checkpointParams](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.touch(ctx, p.Database, false)
}

func (w *world) touch(ctx context.Context, database string, reads bool) ([]activities.Touch, error) {
	if len(w.Databases) < 2 { // its name alone tells it
		return nil, nil
	}
	c, err := w.connect(ctx, database, preflightName)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return []activities.Touch{{Name: "postgres:" + c.id, Reads: reads}}, nil
}
