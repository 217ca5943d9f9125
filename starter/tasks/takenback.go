package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// takenBack is what rollbacks of environments have taken back, by the ids of the tasks.
type takenBack struct {
	by map[string][]environment.TakenBack
	// unknown says which environments have not told.
	unknown []string
}

// of is what was taken back of a task, and of the workflow that has made it what it is now.
func (t takenBack) of(id, by string) []environment.TakenBack {
	if by == "" || by == id {
		return t.by[id]
	}
	return append(slices.Clip(t.by[id]), t.by[by]...)
}

// takenBack asks each environment of the namespace, all beside each other. One without a worker does
// not answer, and is said not to.
func (c *Client) takenBack(ctx context.Context) (found takenBack, err error) {
	all, err := c.listEnvironments(ctx)
	if err != nil {
		return found, err
	}
	views, errs := make([]environment.View, len(all)), make([]error, len(all))
	asked := errgroup.Group{}
	asked.SetLimit(maxAsked)
	for i, e := range all {
		asked.Go(func() error {
			if errs[i] = errNoWorker; c.HasWorker(ctx, e.queue) {
				views[i], errs[i] = c.Environment(ctx, e.name)
			}
			return nil
		})
	}
	_ = asked.Wait() // errs has them
	found.by = map[string][]environment.TakenBack{}
	for i, v := range views {
		if gone, is := errors.AsType[*EnvironmentRefusal](errs[i]); is && gone.Why == environment.Unknown {
			continue // it was removed since
		}
		if errs[i] != nil {
			found.unknown = append(found.unknown, fmt.Sprintf(
				"what rollbacks of environment %s have taken back is not known: %v", all[i].name, errs[i]))
		}
		for task, by := range v.TakenBack() {
			found.by[task] = append(found.by[task], by...)
		}
	}
	return found, ctx.Err()
}

var errNoWorker = errors.New("no worker answers; start one")
