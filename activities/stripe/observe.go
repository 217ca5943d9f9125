package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

func (a *action) findTraces(c *session, req request, e activities.Entry) (objects []object, complete bool, err error) {
	if !a.kind.actsOnObject() {
		return c.findMade(req, e)
	}
	o, err := c.getObject(req.parents[0])
	switch {
	case isGone(err):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case a.kind.beganAt(o, e.Token).IsZero():
		return nil, true, nil
	}
	return []object{o}, true, nil
}

// Observe compares the step's object with how the step left it.
func (a *action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	c, err := a.openSession(ctx, a.back, e.Place.Journal)
	if err != nil {
		return activities.Observation{}, err
	}
	req, err := a.kind.build(e.Params, e.Token)
	if err != nil {
		return activities.Observation{}, err
	}
	objects, complete, err := a.findTraces(c, req, e)
	if err != nil {
		return activities.Observation{}, asActionError(err)
	}
	if len(objects) == 0 {
		if !complete {
			return activities.Observation{State: activities.Unseen,
				Detail: "too many objects have been created since to find this one"}, nil
		}
		return activities.Observation{State: activities.AsBefore, Detail: "nothing in Stripe has the step's token"}, nil
	}
	o := objects[0]
	how, err := c.endedHow(o)
	if err != nil {
		return activities.Observation{}, asActionError(err)
	}
	name := fmt.Sprintf("%s %s", a.kind.noun, o.text("id"))
	switch {
	case how != "" && a.kind.strategy != activities.Irreversible:
		return activities.Observation{State: activities.AsBefore, Detail: name + " is " + how}, nil
	case a.kind.actsOnObject() && a.kind.isDone(o):
		return activities.Observation{State: activities.AsLeft, Detail: name + " is " + o.text("status")}, nil
	case a.kind.actsOnObject() && a.kind.isUndone(o):
		return activities.Observation{State: activities.AsBefore, Detail: name + " is still " + o.text("status")}, nil
	case a.kind.actsOnObject():
		return activities.Observation{State: activities.Unseen, Detail: name + " is " + o.text("status")}, nil
	}
	drift, err := c.findDrift(a.kind, req, o)
	if err != nil {
		return activities.Observation{}, asActionError(err)
	}
	if drift != nil {
		return activities.Observation{State: activities.Elsewise, Detail: name + " was changed", Drift: drift}, nil
	}
	return activities.Observation{State: activities.AsLeft, Detail: name + " is as the step left it"}, nil
}

// scene shows the object to checks: a JSON check without a file reads it.
type scene struct{ o object }

func (s scene) Target() string { return s.o.text("id") }

func (s scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.Target() {
		return nil, activities.Errorf(activities.Refused,
			"file %s: a check of a Stripe step sees only the object that the step created or changed, %s", name, s.Target())
	}
	return json.Marshal(s.o)
}

func (s scene) Run(context.Context, []string) ([]byte, error) {
	return nil, errors.New("no command can run in Stripe; use a json check, or a step of another world")
}
