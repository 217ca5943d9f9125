package unit

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// The names of the actions that change a unit.
const (
	stopAction  = "unit.stop"
	startAction = "unit.start"
)

// toggle is unit.stop or unit.start.
type toggle struct {
	*world

	name string
}

type params struct {
	Unit   string `json:"unit"             jsonschema:"the name of a unit in the worker's config"`
	Absent bool   `json:"absent,omitempty" jsonschema:"true: a unit whose container is not there counts as stopped, and is left so; by default it is refused"`
}

// startParams has what only a start knows.
type startParams struct {
	params

	If *bool `json:"if,omitempty" jsonschema:"false: the step does nothing; for a unit that did not run before it was stopped"`
}

// paramsOf are the parameters of either action, and whether it is to do something.
func paramsOf(action string, raw json.RawMessage) (p params, does bool, err error) {
	if action == startAction {
		start, err := activities.DecodeParams[startParams](raw)
		return start.params, start.If == nil || *start.If, err
	}
	p, err = activities.DecodeParams[params](raw)
	return p, true, err
}

func (a *toggle) Spec() activities.Spec {
	s := activities.Spec{
		Name: a.name, Summary: "Stops a unit of the host: a service that the worker's config names.",
		Params:  activities.ParamsSchema[params](),
		Outputs: map[string]string{"ran": "whether the unit ran before the step"}, UndoParams: []string{"unit", "absent"},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "unit"}},
		HostBound: true, Preflights: true, Risk: activities.Medium, Strategy: activities.Compensation,
		Undo: "The unit is started again if it ran before.",
		Redo: "It is stopped again.",
	}
	if a.name == startAction {
		s.Params = activities.ParamsSchema[startParams]()
		s.Summary = "Starts a unit of the host: a service that the worker's config names."
		s.Undo, s.Redo = "The unit is stopped again if it did not run before.", "It is started again."
	}
	return s
}

// Preflight implements activities.Preflighter.
func (a *toggle) Preflight(ctx context.Context, o activities.Outlook) error {
	p, _, err := paramsOf(a.name, o.With)
	if err != nil {
		return err
	}
	u, err := a.find(p.Unit)
	if err == nil && u.Container != "" {
		_, err = subject{u, p.Absent}.runs(ctx)
	}
	return err
}

func (a *toggle) call(ctx context.Context, j job, result any) error {
	j.Config = a.Config
	return calls.Run(ctx, a.journal, j, result)
}

func (a *toggle) Plan(ctx context.Context, e activities.Entry, s activities.Step) (c activities.Change, err error) {
	return c, a.call(ctx, job{Op: isolated.Plan, Entry: e, Step: s}, &c)
}

func (a *toggle) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	if err := a.call(ctx, job{Op: isolated.Apply, Entry: e, Step: s, Want: want}, &r); err != nil {
		return r, err
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{})
}

func (a *toggle) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone, err error) {
	return u, a.call(ctx, job{Op: isolated.Undo, Entry: e, Decision: d}, &u)
}

func (a *toggle) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	return o, a.call(ctx, job{Op: isolated.Observe, Entry: e}, &o)
}

func (a *toggle) Release(_ context.Context, e activities.Entry) error {
	if err := a.journal.Check(e.Place.Journal); err != nil {
		return err
	}
	t, err := a.journal.Token(e.Token)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	return errors.Join(t.Drop(journal.Record), t.Drop(journal.Applied), t.MarkReleased())
}
