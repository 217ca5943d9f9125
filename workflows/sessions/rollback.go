package sessions

import (
	"math"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/engine"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// rollBack undoes a part of the session.
var rollBack = ask[protocol.SessionRollback]{check: checkTakes[protocol.SessionRollback],
	inspect: (*session).inspectRollback, carryOut: (*session).rollBack}.as(protocol.UpdateRollback)

func (t *session) inspectRollback(r protocol.SessionRollback) error {
	_, _, err := t.scope(r)
	return err
}

func (t *session) rollBack(ctx workflow.Context, q *request, r protocol.SessionRollback) error {
	if err := t.inspectRollback(r); err != nil {
		return err
	}
	then, err := t.prepareRestore(ctx, r)
	if err != nil {
		return err
	}
	from, only, err := t.scope(r) // others may have changed something meanwhile
	if err != nil {
		return err
	}
	text := "rolled back by the agent"
	if r.To != "" {
		text += " to savepoint " + r.To
	}
	if r.Branch != nil {
		text += ", kept as branch " + r.Branch.Name
	}
	if r.Why != "" {
		text += ": " + payload.Clip(r.Why, payload.MaxWhy)
	}
	q.rollback = &engine.Rollback{
		Cause: compensations.Cause{Kind: compensations.RolledBack, Step: only, Text: text}, Begun: true, From: from,
		Only: only, Request: q.id, To: r.To,
		Branch: r.Branch, Then: then,
	}
	q.context = t.contextOf(r.To)
	t.Rollbacks.Ask(q.rollback)
	return nil
}

// scope works out what a request to roll back undoes: everything from a sequence number on, or one
// step.
func (t *session) scope(r protocol.SessionRollback) (from int, only string, err error) {
	if err := t.checkNewBranch(r); err != nil {
		return 0, "", err
	}
	switch {
	case (r.To == "") == (r.Step == ""):
		return 0, "", protocol.RefuseRequestf(protocol.BadRequest, "exactly one of to and step must be given")
	case r.To != "":
		from, isKnown := t.Savepoints.Places[r.To]
		if !isKnown {
			return 0, "",
				protocol.RefuseRequestf(protocol.BadRequest, "to: there is no savepoint %q; there are %s", r.To,
					listed(t.Savepoints.Names()))
		}
		if from <= t.Pivot.Seq {
			return 0, "",
				protocol.RefuseRequestf(protocol.BadRequest,
					"to: a pivot that is done stands after savepoint %q: it is never undone", r.To)
		}
		return from, "", nil
	}
	if s := t.Schedule.ByID[r.Step]; s != nil && (!s.IsOver() || s.Rollback != nil) {
		return math.MaxInt, r.Step, nil
	}
	if !slices.ContainsFunc(t.Saga.Entries(), func(e activities.Entry) bool { return e.Step == r.Step }) {
		return 0, "",
			protocol.RefuseRequestf(protocol.BadRequest,
				"step: the ledger has no step %q: it was never done, is undone already, or stands before a pivot",
				payload.Clip(r.Step, payload.MaxName))
	}
	return math.MaxInt, r.Step, nil
}
