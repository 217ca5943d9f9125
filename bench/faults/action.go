package faults

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

const actionName = "counter.add"

// add is the same service as an action.
type add struct{ service service }

func world(s service) activities.World {
	return activities.World{Name: "counter", Actions: []activities.Action{add{s}}, Journal: s.journal}
}

type params struct {
	Trial string `json:"trial"`
	Step  string `json:"step"`
}

func (add) Spec() activities.Spec {
	return activities.Spec{
		Name: actionName, Summary: "Adds one to a counter.", Params: activities.ParamsSchema[params](),
		UndoParams: []string{"trial", "step"}, Keys: []activities.Key{}, Risk: activities.Low,
		Strategy: activities.Transaction,
		Undo:     "It is taken from the counter.",
	}
}

// addition is that of an entry, whose parameters are those of the step.
func (a add) addition(ctx context.Context, e activities.Entry) (addition, error) {
	p, err := activities.DecodeParams[params](e.Params)
	if err != nil {
		return addition{}, err
	}
	id, err := a.service.journal(ctx)
	if err == nil && id != e.Place.Journal {
		err = activities.Errorf(activities.WrongPlace, "the journal is %s", id)
	}
	return addition{Trial: p.Trial, Step: p.Step, Key: e.Token}, err
}

func (a add) Plan(ctx context.Context, e activities.Entry, _ activities.Step) (activities.Change, error) {
	what, err := a.addition(ctx, e)
	return activities.Change{
		Summary: "add one to " + what.Step, Strategy: activities.Transaction, Undo: "take it back", Risk: activities.Low,
		Digest: activities.DigestOf([]byte(what.Trial), []byte(what.Step)),
	}, err
}

func (a add) Apply(ctx context.Context, e activities.Entry, _ activities.Step, _ activities.Digest) (activities.Result,
	error) {
	what, err := a.addition(ctx, e)
	if err != nil {
		return activities.Result{}, err
	}
	return activities.Result{Summary: "added one to " + what.Step}, a.service.addValue(ctx, what)
}

func (a add) Undo(ctx context.Context, e activities.Entry, _ activities.Decision) (activities.Undone, error) {
	what, err := a.addition(ctx, e)
	if err != nil {
		return activities.Undone{}, err
	}
	t, err := a.service.takeBack(ctx, what)
	undone := activities.Undone{Outcome: activities.Restored, Observed: fmt.Sprintf("the counter is at %d", t.Value)}
	if !t.Had {
		undone.Outcome = activities.Nothing
	}
	return undone, err
}

func (a add) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	what, err := a.addition(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	state, err := a.service.findKey(ctx, what)
	if state == added {
		return activities.Observation{State: activities.AsLeft}, err
	}
	return activities.Observation{State: activities.AsBefore}, err
}

// Release has nothing to drop: the service's journal is a key and its state.
func (add) Release(context.Context, activities.Entry) error { return nil }
