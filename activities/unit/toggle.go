package unit

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// toggle is an action that changes a unit.
type toggle struct {
	*world

	verb verb
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

type pauseParams struct {
	Unit string `json:"unit" jsonschema:"the name of a unit in the worker's config that is a container"`
}

// resumeParams has what only a resumption knows.
type resumeParams struct {
	pauseParams

	If *bool `json:"if,omitempty" jsonschema:"false: the step does nothing; for a unit that did not run before it was paused"`
}

// paramsOf are the parameters of an action, and whether it is to do something.
func paramsOf(action string, raw json.RawMessage) (p params, does bool, err error) {
	does = true
	switch action {
	case startAction:
		start, err := activities.DecodeParams[startParams](raw)
		return start.params, start.If == nil || *start.If, err
	case pauseAction:
		pause, err := activities.DecodeParams[pauseParams](raw)
		return params{Unit: pause.Unit}, does, err
	case resumeAction:
		resume, err := activities.DecodeParams[resumeParams](raw)
		return params{Unit: resume.Unit}, resume.If == nil || *resume.If, err
	}
	p, err = activities.DecodeParams[params](raw)
	return p, does, err
}

func (a *toggle) Spec() activities.Spec {
	s := activities.Spec{
		Name: a.verb.action, Summary: a.verb.summary,
		Params:  activities.ParamsSchema[params](),
		Outputs: map[string]string{"ran": "whether the unit ran before the step"}, UndoParams: []string{"unit", "absent"},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "unit"}},
		HostBound: true, Preflights: true, Risk: activities.Medium, Strategy: activities.Compensation,
		Undo: a.verb.undone, Redo: a.verb.redone,
	}
	switch a.verb.action {
	case startAction:
		s.Params = activities.ParamsSchema[startParams]()
	case pauseAction:
		s.Params, s.UndoParams = activities.ParamsSchema[pauseParams](), []string{"unit"}
	case resumeAction:
		s.Params, s.UndoParams = activities.ParamsSchema[resumeParams](), []string{"unit"}
	}
	return s
}

// Preflight implements activities.Preflighter.
func (a *toggle) Preflight(ctx context.Context, o activities.Outlook) error {
	p, _, err := paramsOf(a.verb.action, o.With)
	if err != nil {
		return err
	}
	u, err := a.find(p.Unit)
	if err == nil {
		err = a.verb.check(p.Unit, u)
	}
	if err == nil && u.Container != "" {
		_, err = subject{u, p.Absent, a.verb.pauses}.runs(ctx)
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
