package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	return append(t.by[id][:len(t.by[id]):len(t.by[id])], t.by[by]...)
}

// takenBack asks each environment of the namespace, all beside each other. One without a worker does
// not answer, and is said not to.
func (c *Client) takenBack(ctx context.Context) (found takenBack, err error) {
	all, err := c.listEnvironments(ctx)
	if err != nil {
		return found, err
	}
	found.by = map[string][]environment.TakenBack{}
	var one sync.Mutex
	asked, asking := errgroup.WithContext(ctx)
	asked.SetLimit(maxAsked)
	for _, e := range all {
		asked.Go(func() error {
			var v environment.View
			err := errNoWorker
			if c.HasWorker(asking, e.queue) {
				v, err = c.Environment(asking, e.name)
			}
			one.Lock()
			defer one.Unlock()
			if gone, is := errors.AsType[*EnvironmentRefusal](err); is && gone.Why == environment.Unknown {
				return nil // it was removed since
			}
			if err != nil {
				found.unknown = append(found.unknown, fmt.Sprintf(
					"what rollbacks of environment %s have taken back is not known: %v", e.name, err))
			}
			for task, by := range v.TakenBack() {
				found.by[task] = append(found.by[task], by...)
			}
			return nil
		})
	}
	return found, errors.Join(asked.Wait(), ctx.Err())
}

var errNoWorker = errors.New("no worker answers; start one")
