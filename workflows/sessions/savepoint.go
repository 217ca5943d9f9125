package sessions

import (
	"regexp"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// makeSavepoint names the present place.
var makeSavepoint = ask[protocol.SavepointRequest]{
	check: (*session).checkSavepointRequest, inspect: (*session).inspectSavepoint, carryOut: (*session).makeSavepoint,
}.as(protocol.UpdateSavepoint)

func (t *session) checkSavepointRequest(r protocol.SavepointRequest) error {
	return first(t.checkGrows, func() error { return t.checkSavepoint(r.Name) })
}

func (t *session) inspectSavepoint(r protocol.SavepointRequest) error {
	if r.Context == nil {
		return nil
	}
	return checkContext(*r.Context)
}

func (t *session) makeSavepoint(ctx workflow.Context, q *request, r protocol.SavepointRequest) error {
	if r.Context != nil {
		if err := first(func() error { return t.confirmContext(ctx, *r.Context) },
			func() error { return t.checkSavepointRequest(r) }); err != nil {
			return err
		}
	}
	if err := t.Admit(ctx, "savepoint", savepointBytes+payload.SizeOf(r)); err != nil {
		return err
	}
	if t.hasEnvironment() {
		if err := t.takeCheckpoint(ctx, q, r.Name); err != nil {
			return err
		}
	} else {
		t.Savepoints.Add(r.Name, t.Saga.Last()+1)
	}
	q.savepoint = r.Name
	if r.Context != nil {
		q.context = t.rememberContext(ctx, *r.Context, r.Name)
	}
	return nil
}

var savepointForm = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// checkSavepoint refuses a name that cannot be given to the present place.
func (t *session) checkSavepoint(name string) error {
	from, isKnown := t.Savepoints.Places[name]
	switch {
	case !savepointForm.MatchString(name):
		return protocol.RefuseRequestf(protocol.BadRequest,
			"name: %q must have the form a-z, 0-9, _ and -, a letter first, at most 63", payload.Clip(name, payload.MaxName))
	case isKnown && (from != t.Saga.Last()+1 || t.hasEnvironment()):
		return protocol.RefuseRequestf(protocol.BadRequest,
			"name: there is a savepoint %q already; choose another, or roll back to it", name)
	}
	return t.checkRests()
}

// savepointBytes is about what is carried of a savepoint, besides its name and its context.
const savepointBytes = 20
