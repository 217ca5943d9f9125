package stripe

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// Undo takes back what the step did, and sees to it that a forward that is still on its way does nothing.
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

// undoCreate is for creates that move no money. The fence and the probe are the same request under the same key: it
// returns the object that the forward has made, or makes the one that a late forward will get, and either is taken away.
func (a *action) undoCreate(c *session, e activities.Entry, req request, d activities.Decision) (activities.Undone, error) {
	its, err := a.claimObjects(c, e, req)
	if err != nil {
		return activities.Undone{}, err
	}
	a.reach("claimed")
	undone := activities.Undone{Outcome: activities.Nothing, Observed: "Stripe has refused the request or failed to answer it, and lists nothing with its token"}
	for _, o := range its.objects { // more than one only where a key was forgotten between two attempts
		one, err := a.undoObject(c, e, req, o.text("id"), its.fresh, d)
		if err != nil {
			return activities.Undone{}, err
		}
		if undone.Outcome == activities.Nothing || !one.Outcome.Clean() {
			undone = one
		}
	}
	if its.unproven && undone.Outcome == activities.Nothing {
		undone = lookAgain(undone)
	}
	if !its.complete && undone.Outcome.Clean() {
		undone.Outcome = activities.Unknown
		undone.Observed += "; too many objects were made since to see whether an earlier attempt had made another"
	}
	return undone, nil
}

// claimedObjects is what a token's request has made.
type claimedObjects struct {
	objects []object
	// fresh: the undo itself has made it, so that nobody can later.
	fresh bool
	// complete: nothing else can have been made and overlooked.
	complete bool
	// unproven: should it turn out that the forward has made nothing, then the key does not prove it.
	unproven bool
}

// claimObjects finds what the token's request has made, or makes it now so that nobody can later. A key that may be forgotten is
// no proof: then the list is asked first.
func (a *action) claimObjects(c *session, e activities.Entry, req request) (claimedObjects, error) {
	its := claimedObjects{complete: true, unproven: a.isForgotten(e.Since)}
	var err error
	if its.unproven {
		its.objects, its.complete, err = c.search(req, e)
		if err != nil || len(its.objects) > 0 {
			its.complete = true
			return its, err
		}
	}
	o, replayed, err := c.post(req.path, req.params, deriveKey(e.Token))
	switch {
	case err == nil:
		its.objects, its.fresh, its.complete = []object{o}, !replayed, its.complete || replayed
		return its, nil
	case isSpent(err):
		return claimedObjects{}, a.lateError(e)
	case isStuck(err), isDenied(err):
		its.unproven = its.unproven || isStuck(err)
		its.objects, its.complete, err = c.search(req, e)
		if err == nil && len(its.objects) == 0 && !its.complete {
			err = unknownOutcome("too many objects were made since to find whether the step had made one")
		}
		its.complete = true
		return its, err
	}
	return claimedObjects{}, err
}

// undoObject removes one object, unless someone has changed it since.
func (a *action) undoObject(c *session, e activities.Entry, req request, id string, fresh bool, d activities.Decision) (activities.Undone, error) {
	path := req.list + "/" + id
	code := codeDone
	if fresh {
		code = codeNothing
	}
	o, err := c.get(path)
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
		code = earlier // its key may be forgotten, the note is not
	}
	how, err := c.effectEnded(o)
	if err != nil {
		return activities.Undone{}, err
	}
	if how != "" {
		if first, err := c.noteOutcome(a.kind, path, e.Token, code); err == nil {
			code = first
		} else if !isDenied(err) { // denied: it takes no notes any more
			return activities.Undone{}, err
		}
		return a.describeUndo(id, code, how), nil
	}
	drift, err := c.drift(a.kind, req, o)
	if err != nil {
		return activities.Undone{}, err
	}
	if drift != nil {
		if drift.Digest != d.Force {
			return driftedOutcome(drift, "%s %s was changed since; it is untouched", a.kind.noun, id), nil
		}
		code = codeForced
	}
	if code, err = c.noteOutcome(a.kind, path, e.Token, code); err != nil {
		return activities.Undone{}, err
	}
	a.reach("settled")
	for _, inverse := range a.kind.inverses {
		if err = inverse(c, path, e.Token, d.Force); !isDenied(err) {
			break
		}
	}
	a.reach("taken-back")
	if err != nil {
		return activities.Undone{}, err
	}
	if o, err = c.get(path); err != nil && !isGone(err) {
		return activities.Undone{}, err
	}
	how = "deleted"
	if err == nil && isMadeBy(o, e.Token) {
		if how, err = c.effectEnded(o); err != nil {
			return activities.Undone{}, err
		}
	}
	if how == "" {
		return activities.Undone{}, activities.Errorf(activities.ActionFailed, "%s %s is still there after its undo", a.kind.noun, id)
	}
	return a.describeUndo(id, code, how), nil
}

// isMadeBy says that an object is there and a token's; an id that the caller chose can be another's by now.
func isMadeBy(o object, token string) bool { return !o.isDeleted() && noteOn(o, tokenMark) == token }

// describeUndo is the outcome of an undo that has ended, told from what is there: every undo of the token tells the same.
// No code: no undo of the token has taken the object away.
func (a *action) describeUndo(id, code, how string) activities.Undone {
	name := fmt.Sprintf("%s %s", a.kind.noun, id)
	undone := activities.Undone{Outcome: activities.Compensated, Observed: name + " is " + how}
	switch {
	case code == codeNothing:
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("the request had not arrived; %s, which keeps a late one from acting, is %s", name, how)}
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
		undone.Observed += ", with what someone had changed on it since"
	}
	return undone
}

func driftedOutcome(drift *activities.Drift, format string, args ...any) activities.Undone {
	return activities.Undone{Outcome: activities.Drifted, Observed: fmt.Sprintf(format, args...), Drift: drift}
}

// effectEnded says in a word that an object has no effect any more; empty: it has.
func (c *session) effectEnded(o object) (how string, err error) {
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
		return "paid, and all of it given back", nil
	}
	return "", nil
}

// inverse takes an object back, or is denied.
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

// refundInverse is for an intent that somebody has confirmed: only where a person has seen that.
func refundInverse(c *session, path, token string, force activities.Digest) error {
	if force == "" {
		return activities.Errorf(activities.ActionFailed, "%s can no longer be canceled; the next attempt looks at it anew", path)
	}
	return c.giveBack(path, token)
}
