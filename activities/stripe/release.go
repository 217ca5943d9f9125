package stripe

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
)

// Release notes on the step's object that its rollback window has closed, so that no later forward
// or undo acts on it. If there is no object, Release blocks the key.
func (a *action) Release(ctx context.Context, e activities.Entry) error {
	c, err := a.openSession(ctx, a.back, e.Place.Journal)
	if err != nil {
		return err
	}
	req, err := a.kind.build(e.Params, e.Token)
	if err != nil {
		return err
	}
	objects, complete, err := a.findTraces(c, req, e)
	switch {
	case err != nil:
		return asActionError(err)
	case len(objects) == 0 && !complete:
		return activities.Errorf(activities.ActionFailed,
			"too many objects have been created since to find the one of token %s", e.Token)
	case len(objects) == 0:
		return asActionError(a.blockKey(c, e, req))
	}
	for _, o := range objects {
		if err := a.noteReleased(c, e, req, o); err != nil {
			return asActionError(err)
		}
	}
	return nil
}

// noteReleased notes that an object stays, unless an undo came first.
func (a *action) noteReleased(c *session, e activities.Entry, req request, o object) error {
	if a.kind.notedCode(o, e.Token) != "" || noteOn(o, a.kind.mark(fenceMark)) == e.Token {
		return nil
	}
	path := req.list + "/" + o.text("id")
	if a.kind.actsOnObject() {
		path = req.parents[0]
	}
	if _, err := c.writeNote(path, a.kind.mark(releasedMark), e.Token,
		deriveKey(e.Token, "release", pathDigest(path))); err != nil && !isGone(err) {
		return err
	}
	a.reachPoint("released")
	return nil
}

// blockKey spends the key of a request that was never sent: on a note on its parent, or else on the
// request itself, whose object it removes again.
func (a *action) blockKey(c *session, e activities.Entry, req request) error {
	if len(req.parents) > 0 {
		_, err := c.spendKey(a.kind, req.parents[0], e.Token)
		return err
	}
	its, err := a.claimObjects(c, e, req)
	if err != nil || !its.fresh {
		return err
	}
	_, err = a.undoObject(c, e, req, its.objects[0].text("id"), its.fresh, activities.Decision{})
	return err
}
