package host

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Specs are the actions of the worlds that a config opens, or with nil of all built-in worlds,
// without opening any of them: to check or document a task without a worker. The program must have
// called [Hooks] first.
func Specs(c *Config) ([]activities.Spec, error) {
	var scratch Config // a Spec depends on no limit
	for _, k := range Kinds {
		if c == nil || slices.Contains(c.worldNames(), k.Name()) {
			scratch.Worlds = append(scratch.Worlds, k.Sample)
		}
	}
	scratch.State = os.TempDir()
	worlds, err := scratch.lookAtWorlds()
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return activities.NewRegistry(worlds...).Specs(), nil
}

// Validate looks at the steps of a task as a worker with this config would, on this machine, and
// makes nothing. The task was compiled against the config; own are worlds besides those of the
// config.
func Validate(ctx context.Context, c Config, compiled task.Compiled, own ...activities.World) (protocol.Validation,
	error) {
	v := protocol.Validation{Name: compiled.Name, Steps: len(compiled.Steps)}
	c, err := c.WithEnvironment(os.LookupEnv).WithDefaults()
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return v, err
	}
	worlds, err := c.lookAtWorlds()
	if err != nil {
		return v, err
	}
	registry := activities.NewRegistry(append(worlds, own...)...)
	if err := c.checkGates(registry.Specs()); err != nil {
		return v, err
	}
	if _, err := c.openPolicy(); err != nil {
		return v, err
	}
	if _, err := c.openSigners(); err != nil {
		return v, err
	}
	_, problems := registry.Journals(ctx)
	host := builtin{config: c, registry: registry, passes: passesOf(c)}.host()
	for i, s := range compiled.Steps {
		if len(s.References()) > 0 {
			v.Later = append(v.Later, s.ID)
		}
		if s.Place.Host != "" && s.Place.Host != c.Host {
			v.Unseen = append(v.Unseen, fmt.Sprintf("step %s runs on host %s, whose worker looks at it", s.ID, s.Place.Host))
			continue
		}
		if problem := problems[activities.WorldOf(s.Uses)]; problem != "" {
			v.Refusals = append(v.Refusals, activities.Refusal{Step: s.ID, Message: problem})
			continue
		}
		outlook, err := s.Outlook()
		if err != nil {
			return v, err
		}
		refusals, err := registry.Preflight(ctx, host, s.Uses, outlook)
		if err != nil {
			v.Unseen = append(v.Unseen, fmt.Sprintf("step %s: %v", s.ID, err))
		}
		for _, r := range refusals {
			if r.Current == "" || !compiled.MayChange(i, r.Current) {
				v.Refusals = append(v.Refusals, r)
			}
		}
	}
	return v, nil
}
