package sqlite

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight checks the parameters, and that the database is there, without opening it.
func (a *action) Preflight(ctx context.Context, o activities.Outlook) error {
	database, err := a.named(o)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err == nil && !o.Awaits("database") {
		_, err := a.locateThere(database)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// named decodes a step's parameters, as far as they are known, and returns the database that they
// name.
func (a *action) named(o activities.Outlook) (string, error) {
	if a.spec.ReadOnly {
		p, err := decodeParams[queryParams](o.With)
		return p.Database, err
	}
	p, err := decodeParams[execParams](o.With)
	if err == nil && !o.AwaitsAny() {
		p, err = parseExec(o.With)
	}
	return p.Database, err
}
