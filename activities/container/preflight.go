package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/target"
)

// Preflight looks at the parameters, and whether the container runs.
func (x *execAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[params](o.With)
	if err != nil {
		return err
	}
	name := p.Container
	const awaited = "awaited" // in place of what depends on an earlier step
	if o.Awaits("container") {
		p.Container = awaited
	}
	if o.Awaits("command") {
		p.Command = awaited
	}
	if o.Awaits("argv") {
		p.Argv = []string{awaited}
	}
	if _, err := p.check(o.Checks); err != nil || name == "" {
		return err
	}
	return target.Preflight(ctx, x.engine, name)
}

// Touches names the container and what is mounted in it.
func (x *execAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[params](o.With)
	if err != nil || p.Container == "" {
		return nil, err
	}
	return target.Touches(ctx, x.engine, p.Container)
}
