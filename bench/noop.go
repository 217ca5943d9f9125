package main

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
)

// noop is an action that does nothing, so it shows the cost of a step itself: entry, secrets,
// masking, summary, details.
type noop struct {
	// called is called for every forward and undo; may be nil.
	called func(undo bool, e activities.Entry) error
}

func noopWorld(called func(undo bool, e activities.Entry) error) activities.World {
	return activities.World{
		Name: "noop", Actions: []activities.Action{noop{called}},
		Journal: func(context.Context) (string, error) { return "noop", nil },
	}
}

func (noop) Spec() activities.Spec {
	return activities.Spec{
		Name: "noop.step", Summary: "Does nothing.", Params: activities.ParamsSchema[struct{}](), Keys: []activities.Key{},
		Risk: activities.Low, Strategy: activities.Compensation, Undo: "Nothing is undone.",
	}
}

func (noop) Plan(_ context.Context, e activities.Entry, _ activities.Step) (activities.Change, error) {
	return activities.Change{
		Summary: "nothing", Strategy: activities.Compensation, Risk: activities.Low,
		Digest: activities.DigestOf([]byte(e.Token)),
	}, nil
}

func (n noop) Apply(_ context.Context, e activities.Entry, _ activities.Step, _ activities.Digest) (activities.Result,
	error) {
	if n.called == nil {
		return activities.Result{}, nil
	}
	return activities.Result{}, n.called(false, e)
}

func (n noop) Undo(_ context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	if n.called == nil {
		return activities.Undone{Outcome: activities.Nothing}, nil
	}
	return activities.Undone{Outcome: activities.Restored}, n.called(true, e)
}

func (noop) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsLeft}, nil
}

func (noop) Release(context.Context, activities.Entry) error { return nil }
