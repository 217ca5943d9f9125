package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// hostWait is how long a task waits at its start for a worker on a host that it names: before anything was touched, an
// error is better than patience.
const hostWait = time.Minute

// compile has a worker that knows the actions turn the document into steps, and asks each host that the task names for its
// journals.
func compile(ctx workflow.Context, doc json.RawMessage) (task.Compiled, error) {
	var compiled task.Compiled
	// A local activity: whoever runs the workflow knows the actions, and a document that is checked twice is harmless.
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: time.Minute,
		Summary:             "check the task file",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	if err := workflow.ExecuteLocalActivity(local, CompileActivity, doc).Get(ctx, &compiled); err != nil {
		return compiled, err
	}
	options := workflow.ActivityOptions{
		StartToCloseTimeout:    10 * time.Second, // a world that does not answer is reported as a problem after 5
		ScheduleToStartTimeout: hostWait,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
	places := map[string]Places{} // by queue; only looked up, never ranged over
	for i := range compiled.Steps {
		s := &compiled.Steps[i]
		if s.Place.Journal != "" {
			continue
		}
		host, known := places[s.Place.Queue]
		if !known {
			options.TaskQueue = s.Place.Queue
			options.Summary = "ask host " + s.Place.Host
			err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), PlacesActivity).Get(ctx, &host)
			if err != nil {
				return compiled, refused("steps.%s.on: no worker serves host %q (queue %s) within %s; start one there, or name another host: %v",
					s.ID, s.Place.Host, s.Place.Queue, hostWait, err)
			}
			places[s.Place.Queue] = host
		}
		world := activities.WorldOf(s.Uses)
		switch s.Place.Journal = host.Journals[world]; {
		case host.Problems[world] != "":
			return compiled, refused("steps.%s.uses: the worker on queue %s cannot use world %q now: %s", s.ID, s.Place.Queue, world, host.Problems[world])
		case s.Place.Journal == "":
			return compiled, refused("steps.%s.on: the worker on queue %s does not serve world %q", s.ID, s.Place.Queue, world)
		}
	}
	return compiled, nil
}
