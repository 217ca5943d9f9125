package terraform

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight looks for the program and the folder; it does not start terraform.
func (a *applyAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[Params](o.With)
	if err != nil {
		return err
	}
	problems := []error{a.checkInstalled(), activities.CheckPrograms(ctx, o.Checks)}
	if !o.Awaits("dir") {
		_, err := a.resolveFolder(p.Dir)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
