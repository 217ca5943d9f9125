package host

import (
	"context"
	"errors"
	"path/filepath"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	steps "github.com/seed-62bf7108/unwind/activities/environment"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// environmentKind is here and not in its world, since what keeps environments is above all worlds.
var environmentKind = activities.Kind{Sample: &EnvironmentSettings{Names: []string{"*"}}}

// EnvironmentSettings are the section environment of a worker's config: it lets steps take
// checkpoints of environments, and roll them back.
type EnvironmentSettings struct {
	// Names are the environments that steps may use; "*" is any. Required.
	Names []string `yaml:"names"`
}

// World implements activities.Settings.
func (*EnvironmentSettings) World() string { return "environment" }

// Check implements activities.Settings.
func (s *EnvironmentSettings) Check(_ activities.Opening, bad activities.Bad) error {
	if len(s.Names) == 0 {
		bad("names", `name at least one environment, or "*" for any`)
	}
	for _, name := range s.Names {
		if name == "*" {
			continue
		}
		if err := environment.CheckName(name); err != nil {
			bad("names", "%v", err)
		}
	}
	return nil
}

// Open implements activities.Settings.
func (s *EnvironmentSettings) Open(o activities.Opening) (activities.World, error) {
	return s.openOn(o, recovery.Server{})
}

// openOn opens the world on a server; on none, to look only.
func (s *EnvironmentSettings) openOn(o activities.Opening, server recovery.Server) (activities.World, error) {
	return steps.New(steps.Config{
		State: filepath.Join(o.State, "environment"), Names: s.Names, LookOnly: o.LookOnly,
		Keeper: environmentKeeper{server: server, stored: filepath.Join(o.State, "environments")},
	})
}

// admit answers an environment that is about to act for a step.
func (b builtin) admit(_ context.Context, r environment.AdmitRequest) error {
	fence, is := b.registry.Action("environment.rollback").(steps.Fence)
	if !is {
		return nonRetryable(errors.New("this worker lets no step use an environment: its config has no section environment"))
	}
	err := fence.Admit(r.Token, r.Undoing)
	if late, is := errors.AsType[*activities.Error](err); is && late.Type.Final() {
		return temporal.NewNonRetryableApplicationError(late.Message, string(late.Type), nil)
	}
	return err
}
