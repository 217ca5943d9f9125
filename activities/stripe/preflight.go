package stripe

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight looks at the key and at the request; it sends nothing.
func (a *action) Preflight(ctx context.Context, o activities.Outlook) error {
	_, err := a.newSession(ctx, a.forward)
	problems := []error{err, refuseStaged(o.Checks)}
	for i, check := range o.Checks {
		if check.Command != nil {
			problems = append(problems,
				activities.Errorf(activities.Refused,
					"check[%d]: no command can run in Stripe; use a json check, or a step of another world", i))
		}
	}
	if !o.AwaitsAny() {
		_, err := a.kind.build(o.With, "preflight")
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func refuseStaged(checks []activities.Check) error {
	for i, check := range checks {
		if check.When == activities.Staged {
			return activities.Errorf(activities.Refused, "check[%d]: when: staged; Stripe stages nothing, use live", i)
		}
	}
	return nil
}
