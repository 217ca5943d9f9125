package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
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

// takenBack asks each environment of the namespace about tasks, the oldest of which began at a time.
// All are asked beside each other, and all together within the limit of silence. What does not answer
// by then is said not to.
func (c *Client) takenBack(ctx context.Context, oldest time.Time) (found takenBack, err error) {
	all, err := c.listEnvironments(ctx)
	if err != nil {
		return found, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.silenceLimit(), errSilent)
	defer cancel()
	views, errs := make([]environment.View, len(all)), make([]error, len(all))
	asked := errgroup.Group{}
	asked.SetLimit(maxAsked)
	for i, e := range all {
		asked.Go(func() error {
			if views[i], errs[i] = c.askForView(limited, e); limited.Err() != nil && errs[i] != nil {
				errs[i] = context.Cause(limited)
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
			continue
		}
		found.unknown = append(found.unknown, v.Unknown(oldest)...)
		for task, by := range v.TakenBack() {
			found.by[task] = append(found.by[task], by...)
		}
	}
	return found, ctx.Err()
}

// askForView asks an environment for what it is, if there is a worker that can answer.
func (c *Client) askForView(ctx context.Context, e listed) (v environment.View, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	d, err := c.DescribeTaskQueue(ctx, e.queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return v, fmt.Errorf("whether a worker answers is not known: %w", err)
	}
	if len(d.GetPollers()) == 0 {
		return v, errNoWorker
	}
	return c.Environment(ctx, e.name)
}

var (
	errNoWorker = errors.New("no worker answers; start one")
	errSilent   = errors.New("it has not answered in time")
)
