package stripe

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/remote"
)

// undoRun is the undo of a forward that may move money. It never sends the forward's request, not
// even to learn its response.
type undoRun struct {
	*session
	action   *action
	entry    activities.Entry
	req      request
	decision activities.Decision
	// target is the object that the forward acts on or for; nil if it is gone.
	target object
	// arrived is false only if the forward certainly neither acted nor ever will.
	arrived bool
}

// spendKey uses a forward's key for something harmless: a note on the object that the forward acts
// on. Stripe then answers the forward with an error, however late it comes; if the forward came
// first, the note gets the error. So one request both fences the forward and tells whether it had
// arrived.
func (c *session) spendKey(k *kind, path, token string) (arrived bool, err error) {
	_, _, err = c.postWithKey(path, formParams("metadata["+k.mark(fenceMark)+"]", token), deriveKey(token))
	switch {
	case err == nil, isStuck(err): // stuck: the key holds the response to the note itself
		return false, nil
	case isSpent(err), isDenied(err): // denied: the object accepts no notes any more, so look at it
		return true, nil
	}
	return false, err
}

// undoSpend fences the forward, reads the target, and lets the kind undo what it sees.
func (a *action) undoSpend(c *session, e activities.Entry, req request, d activities.Decision) (activities.Undone,
	error) {
	u := &undoRun{session: c, action: a, entry: e, req: req, decision: d}
	path := req.parents[0]
	target, err := c.getObject(path)
	if err != nil && !isGone(err) {
		return activities.Undone{}, err
	}
	if err == nil && a.kind.actsOnObject() {
		if err := a.kind.checkKept(target, e.Token); err != nil {
			return activities.Undone{}, err
		}
	}
	if u.arrived, err = c.spendKey(a.kind, path, e.Token); err != nil {
		return activities.Undone{}, err
	}
	if u.arrived && a.kind.actsOnObject() {
		if _, err := c.writeNote(path, a.kind.mark(fenceMark), e.Token, deriveKey(e.Token, "fence")); err != nil &&
			!isDenied(err) {
			return activities.Undone{}, err
		}
	}
	a.reachPoint("fenced")
	if target, err = c.getObject(path); err != nil && !isGone(err) {
		return activities.Undone{}, err
	}
	if err == nil {
		u.target = target
	}
	// A forgotten key can be used again: then only the record tells.
	if began := a.kind.beganAt(target, e.Token); !began.IsZero() && a.isForgotten(began) {
		u.arrived = true
	}
	return a.kind.spend(u)
}

func (u *undoRun) reportNothing() (activities.Undone, error) {
	undone := activities.Undone{Outcome: activities.Nothing,
		Observed: "the request had not arrived, and its key is blocked: a late one has no effect"}
	if u.arrived {
		undone.Observed = "Stripe shows no effect of the request, and its key is spent"
	}
	// A verb that has arrived may have lost its effect since: an authentication that failed, for one.
	// All else had one to show.
	if u.decision.Done && (!u.arrived || u.target == nil || !u.action.kind.actsOnObject()) {
		return contradict(undone), nil
	}
	if u.target != nil && u.isUnproven() {
		undone = remote.LookLate(undone, lateLookDelay)
	}
	return undone, nil
}

// contradict is the outcome where Stripe shows nothing of a step of which the history knows that it
// has succeeded.
func contradict(nothing activities.Undone) activities.Undone {
	return activities.Undone{
		Outcome: activities.Unknown,
		Observed: "the task knows that the step had succeeded, but Stripe shows nothing of it: look there for what it " +
			"has made; what was seen: " + nothing.Observed,
	}
}

// lateLookDelay is when a late sweep looks again at an undo that saw nothing: later than Stripe
// remembers any key that it has used. The forward's key proves that nothing will come, unless the
// key may be forgotten (a stopped worker may then send the request once the undo's own use of the
// key is forgotten too) or Stripe failed with a status 500 (it may still finish what it began).
const lateLookDelay = 25 * time.Hour

// isUnproven says that what Stripe shows does not prove that the request has no effect, or never
// will. The effect of a verb shows on its object, as long as the key blocks a late request. A
// create has no such object: its spent key may hold a refusal, or a status 500 for what Stripe did
// after all.
func (u *undoRun) isUnproven() bool {
	if !u.action.kind.actsOnObject() {
		return u.arrived || u.action.isForgotten(u.entry.Since)
	}
	began := u.action.kind.beganAt(u.target, u.entry.Token)
	return !began.IsZero() && u.action.isForgotten(began)
}

func compensated(observed string, losses ...string) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Compensated, Observed: observed, Losses: losses}, nil
}

// reportRepaid is the outcome of an undo that refunded an intent.
func (u *undoRun) reportRepaid() (activities.Undone, error) {
	losses := []string{lossFee, lossMails}
	if u.action.kind.verb == "capture" {
		losses = append(losses, lossHold)
	}
	return compensated(fmt.Sprintf("payment_intent %s is fully refunded", u.target.text("id")), losses...)
}

// reportFreed is the outcome of an undo that released the money that an intent held.
func (u *undoRun) reportFreed() (activities.Undone, error) {
	return compensated(fmt.Sprintf("payment_intent %s is canceled, and holds no money", u.target.text("id")), lossIntent)
}

// refuseDrift returns the outcome of drift without a decision, else nil.
func (u *undoRun) refuseDrift(diff string) *activities.Undone {
	drift := &activities.Drift{Digest: activities.DigestOf([]byte(u.target.text("id")), []byte(diff)), Diff: diff}
	if drift.Digest == u.decision.Force {
		return nil
	}
	undone := driftedOutcome(drift, "%s %s was changed since; it was left untouched", u.action.kind.noun,
		u.target.text("id"))
	return &undone
}

func statusIn(states ...string) func(object) bool {
	return func(o object) bool { return slices.Contains(states, o.text("status")) }
}

func undoConfirm(u *undoRun) (activities.Undone, error) {
	paid, failed := []string{}, []string{}
	if u.target == nil || !u.arrived {
		return u.reportNothing()
	}
	_, err := u.listObjects("/v1/charges", url.Values{"payment_intent": {u.target.text("id")}}, func(charge object) {
		if charge.text("status") == "failed" {
			failed = append(failed, charge.text("id"))
		} else {
			paid = append(paid, charge.text("id"))
		}
	})
	if err != nil {
		return activities.Undone{}, err
	}
	id, path, status := u.target.text("id"), u.req.parents[0], u.target.text("status")
	switch {
	case status == "processing":
		return activities.Undone{}, activities.Errorf(activities.ActionFailed, "payment_intent %s is still being processed",
			id)
	case len(paid) == 0 && status != "requires_action":
		return u.reportNothing()
	case status == "canceled":
		return u.reportFreed()
	case status == "succeeded":
		all, _, err := u.isReturned(u.target)
		if err != nil {
			return activities.Undone{}, err
		}
		if all {
			return u.reportRepaid()
		}
	}
	// This step made exactly one charge, a successful one.
	byOther := len(failed) > 0 || len(paid) > 1 || status == "succeeded" && u.target.text("capture_method") == "manual"
	if byOther {
		diff := fmt.Sprintf(
			"payment_intent %s is %s, but not by this step alone: charges paid %v, failed %v, capture_method %s",
			id, status, paid, failed, u.target.text("capture_method"))
		if undone := u.refuseDrift(diff); undone != nil {
			return *undone, nil
		}
	}
	return u.returnMoney(path, status)
}

// returnMoney refunds what an intent has taken, or releases what it holds.
func (u *undoRun) returnMoney(path, status string) (activities.Undone, error) {
	id := u.target.text("id")
	if status == "succeeded" {
		err := u.refundRest(path, u.entry.Token)
		u.action.reachPoint("given-back")
		if err != nil {
			return activities.Undone{}, err
		}
		return u.reportRepaid()
	}
	if _, err := u.postOnce(path+"/cancel", &stripe.Params{}, deriveKey(u.entry.Token, "off")); err != nil &&
		!isDenied(err) {
		return activities.Undone{}, err
	}
	u.action.reachPoint("canceled")
	o, err := u.getObject(path)
	if err == nil && o.text("status") != "canceled" {
		err = activities.Errorf(activities.ActionFailed, "payment_intent %s is %s after it was canceled", id,
			o.text("status"))
	}
	if err != nil {
		return activities.Undone{}, err
	}
	return u.reportFreed()
}

func undoCapture(u *undoRun) (activities.Undone, error) {
	if u.target == nil || !u.arrived || u.target.text("status") != "succeeded" {
		return u.reportNothing()
	}
	return u.returnMoney(u.req.parents[0], "succeeded")
}

func undoCancel(u *undoRun) (activities.Undone, error) {
	if u.target == nil || !u.arrived || u.target.text("status") != "canceled" {
		return u.reportNothing()
	}
	return activities.Undone{Outcome: activities.Final,
		Observed: fmt.Sprintf("payment_intent %s is canceled for good", u.target.text("id"))}, nil
}

func undoRefund(u *undoRun) (activities.Undone, error) {
	made, undone, err := u.findOwn()
	if err != nil || undone != nil {
		return orZero(undone), err
	}
	if len(made) == 0 {
		return u.reportNothing()
	}
	o := made[0]
	id, path := o.text("id"), u.req.list+"/"+o.text("id")
	if _, err := u.writeNote(path, u.action.kind.mark(fenceMark), u.entry.Token,
		deriveKey(u.entry.Token, "fence", id)); err != nil {
		return activities.Undone{}, err
	}
	if o.text("status") == "requires_action" {
		if _, err := u.postOnce(path+"/cancel", &stripe.Params{}, deriveKey(u.entry.Token, "off")); err != nil &&
			!isDenied(err) {
			return activities.Undone{}, err
		}
		if o, err = u.getObject(path); err != nil {
			return activities.Undone{}, err
		}
	}
	switch o.text("status") {
	case "canceled":
		return compensated(fmt.Sprintf("refund %s is canceled", id))
	case "failed":
		return activities.Undone{Outcome: activities.Nothing, Observed: fmt.Sprintf("refund %s has failed", id)}, nil
	}
	return activities.Undone{Outcome: activities.Final,
		Observed: fmt.Sprintf("refund %s is %s: the customer has the money", id, o.text("status"))}, nil
}

// findOwn returns the objects that carry the token, or the outcome if they cannot be listed.
func (u *undoRun) findOwn() (made []object, undone *activities.Undone, err error) {
	made, complete, err := u.findMade(u.req, u.entry)
	if err != nil {
		return nil, nil, err
	}
	if len(made) == 0 && !complete {
		return nil, &activities.Undone{Outcome: activities.Unknown,
			Observed: "too many objects have been created since to tell whether the request acted; its key is blocked"}, nil
	}
	for _, o := range made {
		if err := u.action.kind.checkKept(o, u.entry.Token); err != nil {
			return nil, nil, err
		}
	}
	return made, nil, nil
}

func orZero(u *activities.Undone) activities.Undone {
	if u == nil {
		return activities.Undone{}
	}
	return *u
}
