package stripe

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// findStanding returns what an earlier generation of an irreversible step did and its rollback
// could not undo: a redo would repeat it. It returns nil if nothing of it stands.
func (a *action) findStanding(c *session, e activities.Entry, req request) (object, error) {
	target, err := c.getObject(req.parents[0])
	if err != nil {
		return nil, err
	}
	if err := a.kind.checkOpen(target, e.Token); err != nil {
		return nil, err
	}
	earlier := e
	earlier.Token, earlier.Since = e.Redoes, time.Time{}
	objects, complete, err := a.findTraces(c, req, earlier)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		status := o.text("status")
		if a.kind.actsOnObject() && a.kind.isDone(o) || !a.kind.actsOnObject() && status != "canceled" && status != "failed" {
			return o, nil
		}
	}
	if !complete {
		return nil, unknownOutcome(
			"too many objects have been created since to tell whether the effect of the step still stands from before the " +
				"rollback")
	}
	return nil, nil
}
