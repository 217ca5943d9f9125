package sqlite

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight checks the parameters, and that the database is there, without opening it.
func (a *action) Preflight(ctx context.Context, o activities.Outlook) error {
	named, err := a.named(o)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err == nil && !o.Awaits("database") {
		_, err := a.locateThere(named.Database)
		problems = append(problems, err)
	}
	for param, name := range map[string]string{"checkpoint": named.Checkpoint, "with": named.With} {
		if name != "" && !o.Awaits(param) {
			_, err := tokenOf(name)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// named decodes a step's parameters, as far as they are known, and returns the database and the
// checkpoints that they name.
func (a *action) named(o activities.Outlook) (named compareParams, err error) {
	switch a.spec.Name {
	case queryName:
		p, err := decodeParams[queryParams](o.With)
		return compareParams{Database: p.Database}, err
	case keepName:
		p, err := decodeParams[keepParams](o.With)
		return compareParams{Database: p.Database}, err
	case restoreName, verifyName:
		p, err := decodeParams[restoreParams](o.With)
		return compareParams{Database: p.Database, Checkpoint: p.Checkpoint}, err
	case compareName:
		return decodeParams[compareParams](o.With)
	}
	p, err := decodeParams[execParams](o.With)
	if err == nil && !o.AwaitsAny() {
		p, err = parseExec(o.With)
	}
	return compareParams{Database: p.Database}, err
}
