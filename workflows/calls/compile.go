package calls

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// HostWait is how long a task waits at its start for a worker on a host that it names: before
// anything has been touched, an error is better than waiting.
const HostWait = time.Minute

// Compile turns the document into steps, on a worker that knows the actions, and asks each host
// that the task names for its journals.
func Compile(ctx workflow.Context, doc json.RawMessage) (task.Compiled, error) {
	compiled, err := compileLocally(ctx, protocol.CompileActivity, "check the task file", doc)
	if err != nil {
		return compiled, err
	}
	return compiled, LocateSteps(ctx, compiled.Steps, map[string]protocol.Places{})
}

func compileLocally(ctx workflow.Context, activity, summary string, argument any) (task.Compiled, error) {
	var compiled task.Compiled
	// A local activity: the worker that runs the workflow knows the actions, and checking a document
	// twice is harmless.
	local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: time.Minute,
		Summary:             summary,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
			MaximumInterval: time.Minute},
	})
	err := workflow.ExecuteLocalActivity(local, activity, argument).Get(ctx, &compiled)
	return compiled, err
}

// LocateSteps fills in the journals of steps. It asks each host once, and keeps the answer in
// places, by task queue.
func LocateSteps(ctx workflow.Context, steps []task.Step, places map[string]protocol.Places) error {
	options := workflow.ActivityOptions{
		StartToCloseTimeout:    10 * time.Second, // a world that does not answer is reported as a problem after 5
		ScheduleToStartTimeout: HostWait,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2,
			MaximumInterval: time.Minute},
	}
	for i := range steps {
		s := &steps[i]
		if s.Place.Journal != "" {
			continue
		}
		host, known := places[s.Place.Queue]
		if !known {
			options.TaskQueue = s.Place.Queue
			options.Summary = "ask host " + s.Place.Host
			err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.PlacesActivity).Get(ctx, &host)
			if err != nil {
				return explainUnanswered(s, err)
			}
			places[s.Place.Queue] = host
		}
		world := activities.WorldOf(s.Uses)
		switch s.Place.Journal, s.Place.Signed = host.Journals[world], host.Signed; {
		case host.Problems[world] != "":
			return protocol.Refusef("steps.%s.uses: the worker on queue %s cannot use world %q now: %s", s.ID, s.Place.Queue,
				world, host.Problems[world])
		case s.Place.Journal == "":
			return protocol.Refusef("steps.%s.on: the worker on queue %s does not serve world %q", s.ID, s.Place.Queue, world)
		}
	}
	return nil
}

// explainUnanswered says why a host has not named its journals.
func explainUnanswered(s *task.Step, err error) error {
	timeout, late := errors.AsType[*temporal.TimeoutError](err)
	switch {
	case temporal.IsCanceledError(err):
		return protocol.Refusef("steps.%s.on: no worker has served host %q (queue %s) so far", s.ID, s.Place.Host,
			s.Place.Queue)
	case late && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return protocol.Refusef(
			"steps.%s.on: no worker serves host %q (queue %s) within %s; start one there, or name another host",
			s.ID, s.Place.Host, s.Place.Queue, HostWait)
	}
	return protocol.Refusef("steps.%s.on: host %q (queue %s) does not say what it serves: %s", s.ID, s.Place.Host,
		s.Place.Queue, compensations.Reason(err))
}

// CompileAdded compiles steps that are added to a task that runs, and has their hosts name what
// they touch. The compiler names it of its own host, so that asking costs nothing there.
func CompileAdded(ctx workflow.Context, summary string, a task.Addition) (task.Compiled, error) {
	compiled, err := compileLocally(ctx, protocol.CompileStepsActivity, summary, a)
	if err != nil {
		return compiled, err
	}
	touched := compiled.Touched
	if len(compiled.Unnamed) > 0 {
		elsewhere := compiled
		elsewhere.Steps = slices.DeleteFunc(slices.Clone(compiled.Steps),
			func(s task.Step) bool { return !slices.Contains(compiled.Unnamed, s.ID) })
		seen, err := Preflight(ctx, elsewhere)
		if err != nil {
			return compiled, err
		}
		touched = append(touched, seen.Touched...)
	}
	compiled.FollowTouched(touched)
	compiled.Touched, compiled.Unnamed = nil, nil
	return compiled, nil
}
