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
	return a.Databases.Touch(ctx, p.Database)
}

// Touches names the database in the same way.
func (a *queryAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := decode[queryParams](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.Databases.TouchToRead(ctx, p.Database)
}
