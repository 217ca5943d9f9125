package stripe

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/remote"
)

// Undo reverses what the step did, and fences a forward that is still under way.
func (a *action) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	c, err := a.openSession(ctx, a.back, e.Place.Journal)
	if err != nil {
		return activities.Undone{}, err
	}
	req, err := a.kind.build(e.Params, e.Token)
	if err != nil {
		return activities.Undone{}, err
	}
	undo := a.undoCreate
	if a.kind.spend != nil {
		undo = a.undoSpend
	}
	undone, err := undo(c, e, req, d)
	return undone, asActionError(err)
}

// undoCreate undoes creates that move no money. Fence and probe are the forward's own request under
// its own key: it returns the object that the forward created, or creates the one that a late
// forward will get. Either is then removed.
func (a *action) undoCreate(c *session, e activities.Entry, req request, d activities.Decision) (activities.Undone,
	error) {
	its, err := a.claimObjects(c, e, req)
	if err != nil {
		return activities.Undone{}, err
	}
	a.reachPoint("claimed")
	undone := activities.Undone{Outcome: activities.Nothing,
		Observed: "Stripe has refused the request or failed to answer it, and lists nothing with its token"}
	for _, o := range its.objects { // more than one only if a key was forgotten between two attempts
		one, err := a.undoObject(c, e, req, o.text("id"), its.fresh, d)
		if err != nil {
			return activities.Undone{}, err
		}
		if undone.Outcome == activities.Nothing || !one.Outcome.Clean() {
			undone = one
		}
	}
	if undone.Outcome == activities.Nothing {
		switch {
		case d.Done:
			return contradict(undone), nil
		case its.unproven:
			undone = remote.LookLate(undone, lateLookDelay)
		}
	}
	if !its.complete && undone.Outcome.Clean() {
		undone.Outcome = activities.Unknown
		undone.Observed += "; too many objects have been created since to tell whether an earlier attempt created another"
	}
	return undone, nil
}

// claim is what a token's request has created.
type claim struct {
	objects []object
	// fresh: the undo itself created it, so that no forward can.
	fresh bool
	// complete: no other object of the token can exist.
	complete bool
	// unproven: if the forward turns out to have created nothing, the key is no proof of that.
	unproven bool
}

// claimObjects finds what the token's request created, or creates it so that no forward can. If the
// key may be forgotten, it lists the objects first.
func (a *action) claimObjects(c *session, e activities.Entry, req request) (claim, error) {
	its := claim{complete: true, unproven: a.isForgotten(e.Since)}
	var err error
	if its.unproven {
		its.objects, its.complete, err = c.findMade(req, e)
		if err != nil || len(its.objects) > 0 {
			its.complete = true
			return its, err
		}
	}
	o, replayed, err := c.postWithKey(req.path, req.params, deriveKey(e.Token))
	switch {
	case err == nil:
		its.objects, its.fresh, its.complete = []object{o}, !replayed, its.complete || replayed
		return its, nil
	case isSpent(err):
		return claim{}, a.lateError(e)
	case isStuck(err), isDenied(err):
		its.unproven = its.unproven || isStuck(err)
		its.objects, its.complete, err = c.findMade(req, e)
		if err == nil && len(its.objects) == 0 && !its.complete {
			err = unknownOutcome("too many objects have been created since to tell whether the step created one")
		}
		its.complete = true
		return its, err
	}
	return claim{}, err
}

// undoObject removes one object, unless it has drifted.
func (a *action) undoObject(c *session, e activities.Entry, req request, id string, fresh bool,
	d activities.Decision) (activities.Undone, error) {
	path := req.list + "/" + id
	code := codeDone
	if fresh {
		code = codeNothing
	}
	o, err := c.getObject(path)
	if isGone(err) || err == nil && !isMadeBy(o, e.Token) {
		code, err = c.noteOutcome(a.kind, path, e.Token, code)
		return a.describeUndo(id, code, "deleted"), err
	}
	if err != nil {
		return activities.Undone{}, err
	}
	if err := a.kind.checkKept(o, e.Token); err != nil {
		return activities.Undone{}, err
	}
	if earlier := a.kind.notedCode(o, e.Token); earlier != "" {
		code = earlier // the note outlives its key
	}
	how, err := c.endedHow(o)
	if err != nil {
		return activities.Undone{}, err
	}
	if how != "" {
		if first, err := c.noteOutcome(a.kind, path, e.Token, code); err == nil {
			code = first
		} else if !isDenied(err) { // denied: the object accepts no notes any more
			return activities.Undone{}, err
		}
		return a.describeUndo(id, code, how), nil
	}
	drift, err := c.findDrift(a.kind, req, o)
	if err != nil {
		return activities.Undone{}, err
	}
	if drift != nil {
		if drift.Digest != d.Force {
			return driftedOutcome(drift, "%s %s was changed since; it was left untouched", a.kind.noun, id), nil
		}
		code = codeForced
	}
	if code, err = c.noteOutcome(a.kind, path, e.Token, code); err != nil {
		return activities.Undone{}, err
	}
	a.reachPoint("settled")
	for _, inverse := range a.kind.inverses {
		if err = inverse(c, path, e.Token, d.Force); !isDenied(err) {
			break
		}
	}
	a.reachPoint("taken-back")
	if err != nil {
		return activities.Undone{}, err
	}
	if o, err = c.getObject(path); err != nil && !isGone(err) {
		return activities.Undone{}, err
	}
	how = "deleted"
	if err == nil && isMadeBy(o, e.Token) {
		if how, err = c.endedHow(o); err != nil {
			return activities.Undone{}, err
		}
	}
	if how == "" {
		return activities.Undone{},
			activities.Errorf(activities.ActionFailed, "%s %s is still there after its undo", a.kind.noun, id)
	}
	return a.describeUndo(id, code, how), nil
}

// isMadeBy says that an object exists and is the token's: an id that the caller chose may have been
// used again.
func isMadeBy(o object, token string) bool { return !o.isDeleted() && noteOn(o, tokenMark) == token }

// describeUndo is the outcome of a finished undo, derived from what Stripe holds, so that every
// undo of the token reports the same. code is empty if no undo of the token removed the object.
func (a *action) describeUndo(id, code, how string) activities.Undone {
	name := fmt.Sprintf("%s %s", a.kind.noun, id)
	undone := activities.Undone{Outcome: activities.Compensated, Observed: name + " is " + how}
	switch {
	case code == codeNothing:
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("the request had not arrived; %s, which blocks a late one, is %s", name, how)}
	case code == "":
		undone.Observed = name + " had been deleted by someone else"
	case how == "deleted" && a.kind.exact:
		undone.Outcome = activities.Restored
	case how == "deleted" || how == "inactive" && !a.kind.exact || how == "canceled":
		undone.Losses = a.kind.losses
	default:
		undone.Losses = []string{fmt.Sprintf("%s stays, %s", name, how)}
	}
	if code == codeForced {
		undone.Observed += ", along with what someone else had changed on it"
	}
	return undone
}

func driftedOutcome(drift *activities.Drift, format string, args ...any) activities.Undone {
	return activities.Undone{Outcome: activities.Drifted, Observed: fmt.Sprintf(format, args...), Drift: drift}
}

// endedHow says in a word why an object has no effect any more; empty if it has.
func (c *session) endedHow(o object) (how string, err error) {
	switch {
	case o.isDeleted():
		return "deleted", nil
	case o["active"] == false:
		return "inactive", nil
	case o["status"] == "canceled":
		return "canceled", nil
	case o["object"] == "payment_intent" && o["status"] == "succeeded":
		if all, _, err := c.isReturned(o); !all || err != nil {
			return "", err
		}
		return "paid, and fully refunded", nil
	}
	return "", nil
}

// inverse reverses the creation of an object at a path. An error for which isDenied holds lets the
// next one try.
type inverse func(c *session, path, token string, force activities.Digest) error

func deleteInverse(c *session, path, _ string, _ activities.Digest) error {
	return c.deleteObject(path, &stripe.Params{})
}

func deactivateInverse(c *session, path, token string, force activities.Digest) error {
	_, err := c.postOnce(path, formParams("active", "false"), deriveKey(token, "off", pathDigest(path), force.Short()))
	return err
}

func cancelInverse(c *session, path, token string, force activities.Digest) error {
	_, err := c.postOnce(path+"/cancel", &stripe.Params{}, deriveKey(token, "off", pathDigest(path), force.Short()))
	return err
}

// refundInverse is for an intent that somebody has confirmed. It needs a person's decision on that
// drift.
func refundInverse(c *session, path, token string, force activities.Digest) error {
	if force == "" {
		return activities.Errorf(activities.ActionFailed, "%s can no longer be canceled; the next attempt looks at it again",
			path)
	}
	return c.refundRest(path, token)
}
