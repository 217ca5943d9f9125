package stripe

import (
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// stillStanding is what an earlier generation of an irreversible step has done, which its rollback could not take back: a redo
// would do it twice. Nil: nothing of it stands.
func (a *action) stillStanding(c *session, e activities.Entry, req request) (object, error) {
	target, err := c.get(req.parents[0])
	if err != nil {
		return nil, err
	}
	if err := a.kind.checkOpen(target, e.Token); err != nil {
		return nil, err
	}
	earlier := e
	earlier.Token, earlier.Since = e.Redoes, time.Time{}
	objects, complete, err := a.traces(c, req, earlier)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		status := o.text("status")
		if a.kind.actsOnObject() && a.kind.moved(o) || !a.kind.actsOnObject() && status != "canceled" && status != "failed" {
			return o, nil
		}
	}
	if !complete {
		return nil, unknownOutcome("too many objects were made since to find whether what the step had done before the rollback still stands")
	}
	return nil, nil
}
