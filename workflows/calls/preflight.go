package calls

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Bounds on looking at steps before the first one acts. A host that does not answer holds up
// nobody: its steps are looked at when they run.
const (
	preflightWait  = 10 * time.Second // for a worker to take it
	preflightLimit = 30 * time.Second
	// preflightBytes bounds the steps of one activity, and preflightsAtOnce how many are scheduled in
	// one workflow task.
	preflightBytes   = 500_000
	preflightsAtOnce = 3
)

// Preflight has each host look at the steps that it would run, so that what is certain to be
// refused is refused before anything is touched. Steps whose actions have nothing to look at cost
// nothing.
func Preflight(ctx workflow.Context, compiled task.Compiled) (protocol.Preflight, error) {
	batches, err := preflightBatches(compiled)
	if err != nil || len(batches) == 0 {
		return protocol.Preflight{}, err
	}
	slots := workflow.NewSemaphore(ctx, preflightsAtOnce)
	pending := len(batches)
	for i := range batches {
		b := &batches[i]
		workflow.GoNamed(ctx, "preflight "+b.place.Queue, func(ctx workflow.Context) {
			if b.err = slots.Acquire(ctx, 1); b.err == nil {
				b.ask(ctx)
				slots.Release(1)
			}
			pending--
		})
	}
	calm, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	_ = workflow.Await(calm, func() bool { return pending == 0 })
	if ctx.Err() != nil {
		return protocol.Preflight{}, ctx.Err()
	}
	return unite(compiled, batches), nil
}

// preflightBatch is what one activity looks at.
type preflightBatch struct {
	place   activities.Place
	request protocol.PreflightRequest
	size    int
	seen    protocol.Preflight
	err     error
}

// preflightBatches divides the steps to look at by queue and by size, in file order.
func preflightBatches(compiled task.Compiled) ([]preflightBatch, error) {
	var batches []preflightBatch
	last := map[string]int{} // by queue; only looked up, never ranged over
	for _, s := range compiled.Steps {
		if !s.Preflights {
			continue
		}
		outlook, err := s.Outlook()
		if err != nil {
			return nil, protocol.Refusef("%v", err)
		}
		size := payload.SizeOf(outlook)
		i, begun := last[s.Place.Queue]
		if !begun || batches[i].size+size > preflightBytes {
			i = len(batches)
			batches, last[s.Place.Queue] = append(batches, preflightBatch{place: s.Place}), i
		}
		b := &batches[i]
		b.request.Steps, b.size = append(b.request.Steps, protocol.PreflightStep{Uses: s.Uses, Step: outlook}), b.size+size
	}
	return batches, nil
}

func (b *preflightBatch) ask(ctx workflow.Context) {
	b.seen, b.err = LookAt(ctx, b.place, b.request)
}

// LookAt has the host of a place look at steps.
func LookAt(ctx workflow.Context, place activities.Place, request protocol.PreflightRequest) (seen protocol.Preflight,
	err error) {
	summary := fmt.Sprintf("look at %s before anything is touched", activities.CountOf(len(request.Steps), "step"))
	if request.Late {
		summary = "name what " + request.Steps[0].Step.ID + " touches"
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: place.Queue, ScheduleToStartTimeout: preflightWait, StartToCloseTimeout: preflightLimit,
		Summary:     payload.Clip(summary, activities.MaxSummary),
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err = workflow.ExecuteActivity(ctx, protocol.PreflightActivity, request).Get(ctx, &seen)
	return seen, err
}

// unite puts what the hosts have said in file order, without what an earlier step can still change.
func unite(compiled task.Compiled, batches []preflightBatch) protocol.Preflight {
	var all protocol.Preflight
	index := make(map[string]int, len(compiled.Steps)) // only looked up
	for i, s := range compiled.Steps {
		index[s.ID] = i
	}
	for _, b := range batches {
		if b.err != nil {
			where := "the workers"
			if b.place.Host != "" {
				where = "host " + b.place.Host
			}
			all.Unseen = append(all.Unseen,
				fmt.Sprintf("%s did not look at %s from %s on before the first step: %s; each is looked at when it runs",
					where, activities.CountOf(len(b.request.Steps), "step"), b.request.Steps[0].Step.ID,
					payload.Clip(compensations.Reason(b.err), activities.MaxItem)))
			continue
		}
		all.Touched = append(all.Touched, b.seen.Touched...)
		for _, note := range b.seen.Unseen {
			all.Unseen = append(all.Unseen, "not looked at before the first step: "+note)
		}
		for _, r := range b.seen.Refusals {
			if r.Current == "" || !compiled.MayChange(index[r.Step], r.Current) {
				all.Refusals = append(all.Refusals, r)
			}
		}
	}
	slices.SortStableFunc(all.Refusals, func(a, b activities.Refusal) int { return index[a.Step] - index[b.Step] })
	if more := len(all.Unseen) - activities.MaxItems; more > 0 {
		all.Unseen = append(all.Unseen[:activities.MaxItems], fmt.Sprintf("and %d more", more))
	}
	return all
}
