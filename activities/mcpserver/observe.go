package mcpserver

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Observe looks, and compares with what the call left and with what was there before.
func (a *action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	none := activities.Observation{State: activities.AsBefore, Detail: "the tool was never called"}
	o, err := a.begin(e)
	if err != nil {
		return none, err
	}
	var outcome activities.Undone
	isUndone, err := o.token.Read(journal.Outcome, &outcome)
	if err != nil {
		return none, err
	} else if isUndone && outcome.Outcome.Clean() {
		return activities.Observation{State: activities.AsBefore, Detail: outcome.Observed}, nil
	}
	fate, err := o.token.Fate()
	if err != nil {
		return none, err
	}
	u := &undo{oneCall: o, ctx: ctx}
	found, err := o.token.Read(journal.Record, &u.rec)
	switch {
	case err != nil:
		return none, err
	case fate == journal.Releasing, isUndone && !found:
		return activities.Observation{State: activities.Unseen,
			Detail: "what the call changed is no longer known: it was released"}, nil
	case !found:
		return none, o.token.CheckNotLost(false, answered)
	}
	if _, err := u.gather(); err != nil {
		return none, err
	}
	if u.server, err = a.reconnect(ctx, u.rec); err != nil {
		return none, err
	}
	// before the look: after it, the call may have acted and its server ended
	if u.Pending, err = u.canStillArrive(); err != nil {
		return none, err
	}
	now, err := u.look()
	if err != nil {
		return none, err
	}
	return u.Observe(now), nil
}

// Release drops what was seen and answered. The tombstone and the outcome stay.
func (a *action) Release(_ context.Context, e activities.Entry) error {
	o, err := a.begin(e)
	if err != nil {
		return err
	}
	return o.release()
}

func (o *oneCall) release() error {
	if _, err := o.token.DecideReleasing(); err != nil {
		return err
	}
	return errors.Join(o.token.Drop(answered), o.token.Drop(journal.Applied), o.token.Drop(takenBack),
		o.token.Drop(journal.Record), o.token.MarkReleased())
}
