package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

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

// findEnvironment finds the host of the environment that a session names, whose steps may use it.
func (b builtin) findEnvironment(ctx context.Context, name string) (string, error) {
	refuse := func(format string, args ...any) error {
		return nonRetryable(fmt.Errorf("session.environment: "+format, args...))
	}
	v, err := environmentKeeper{server: b.server, stored: filepath.Join(b.config.State, "environments")}.Look(ctx, name)
	switch {
	case activities.TypeOf(err) == activities.Refused:
		return "", refuse("%s", strings.TrimPrefix(err.Error(), "environment: "))
	case err != nil:
		return "", err
	case v.Gone:
		return "", refuse("there is no %q; `starter env list` lists them", name)
	}
	may := SettingsOf[*EnvironmentSettings](b.config)
	if v.Host == b.config.Host && (may == nil || !may.let(name)) {
		return "", refuse("steps may not use %q on this worker; name it in environment.names of its config", name)
	}
	return v.Host, nil
}

func (s *EnvironmentSettings) let(name string) bool {
	return slices.Contains(s.Names, "*") || slices.Contains(s.Names, name)
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
