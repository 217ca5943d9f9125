package stripe

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// undoRun is the undo of a forward that may move money. It never sends that forward, not even to ask for its answer.
type undoRun struct {
	*session
	action   *action
	entry    activities.Entry
	req      request
	decision activities.Decision
	// target is the object that the forward acts on, or for; nil where it is gone.
	target object
	// arrived is set unless it is sure that the forward neither acted nor ever will.
	arrived bool
}

// spendKey blocks a forward's key by using it for something harmless: a note on the object that the forward acts on. Stripe
// answers the forward with an error then, however late it comes; and where the forward came first, it is the note that
// gets the error. So one request both fences and tells whether the forward had arrived.
func (c *session) spendKey(k *kind, path, token string) (arrived bool, err error) {
	_, _, err = c.post(path, formParams("metadata["+k.mark(fenceMark)+"]", token), deriveKey(token))
	switch {
	case err == nil, isStuck(err): // stuck: what the key holds is the note's own answer
		return false, nil
	case isSpent(err), isDenied(err): // denied: the object takes no notes any more, so it has to be looked at
		return true, nil
	}
	return false, err
}

// undoSpend fences, looks, and lets the kind take back what it sees.
func (a *action) undoSpend(c *session, e activities.Entry, req request, d activities.Decision) (activities.Undone, error) {
	u := &undoRun{session: c, action: a, entry: e, req: req, decision: d}
	path := req.parents[0]
	target, err := c.get(path)
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
		if _, err := c.note(path, a.kind.mark(fenceMark), e.Token, deriveKey(e.Token, "fence")); err != nil && !isDenied(err) {
			return activities.Undone{}, err
		}
	}
	a.reach("fenced")
	if target, err = c.get(path); err != nil && !isGone(err) {
		return activities.Undone{}, err
	}
	if err == nil {
		u.target = target
	}
	// A key that was forgotten lets itself be used again: then the record tells.
	if began := a.kind.beganAt(target, e.Token); !began.IsZero() && a.isForgotten(began) {
		u.arrived = true
	}
	return a.kind.spend(u)
}

func (u *undoRun) nothingDone() (activities.Undone, error) {
	undone := activities.Undone{Outcome: activities.Nothing, Observed: "the request had not arrived, and its key is blocked: a late one does nothing"}
	if u.arrived {
		undone.Observed = "Stripe shows nothing that the request has done, and its key is spent"
	}
	if u.target != nil && u.unproven() {
		undone = lookAgain(undone)
	}
	return undone, nil
}

// unproven says that nothing which is seen of the request proves that it has done nothing, or never will. On the object
// that a verb acts on its effect shows, as long as the key keeps a late one away. A create has no such object: its spent
// key may hold a refusal, or an answer 500 to what Stripe has done after all.
func (u *undoRun) unproven() bool {
	if !u.action.kind.actsOnObject() {
		return u.arrived || u.action.isForgotten(u.entry.Since)
	}
	began := u.action.kind.beganAt(u.target, u.entry.Token)
	return !began.IsZero() && u.action.isForgotten(began)
}

func compensated(observed string, losses ...string) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Compensated, Observed: observed, Losses: losses}, nil
}

// reportRepaid is the end of an undo that gave an intent's money back.
func (u *undoRun) reportRepaid() (activities.Undone, error) {
	losses := []string{lossFee, lossMails}
	if u.action.kind.verb == "capture" {
		losses = append(losses, lossHold)
	}
	return compensated(fmt.Sprintf("payment_intent %s: all of its money is given back", u.target.text("id")), losses...)
}

// reportFreed is the end of an undo that let go of the money that an intent held.
func (u *undoRun) reportFreed() (activities.Undone, error) {
	return compensated(fmt.Sprintf("payment_intent %s is canceled, and holds no money", u.target.text("id")), lossIntent)
}

// refuseDrift returns drift that nobody has decided on.
func (u *undoRun) refuseDrift(diff string) *activities.Undone {
	drift := &activities.Drift{Digest: activities.DigestOf([]byte(u.target.text("id")), []byte(diff)), Diff: diff}
	if drift.Digest == u.decision.Force {
		return nil
	}
	undone := driftedOutcome(drift, "%s %s was changed since; it is untouched", u.action.kind.noun, u.target.text("id"))
	return &undone
}

func statusIn(states ...string) func(object) bool {
	return func(o object) bool { return slices.Contains(states, o.text("status")) }
}

func undoConfirm(u *undoRun) (activities.Undone, error) {
	paid, failed := []string{}, []string{}
	if u.target == nil || !u.arrived {
		return u.nothingDone()
	}
	_, err := u.list("/v1/charges", url.Values{"payment_intent": {u.target.text("id")}}, func(charge object) {
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
		return activities.Undone{}, activities.Errorf(activities.ActionFailed, "payment_intent %s is still being processed", id)
	case len(paid) == 0 && status != "requires_action":
		return u.nothingDone()
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
	// One successful charge, and no other, is what this step has made.
	byOther := len(failed) > 0 || len(paid) > 1 || status == "succeeded" && u.target.text("capture_method") == "manual"
	if byOther {
		diff := fmt.Sprintf("payment_intent %s is %s, and not by this step alone: charges paid %v, failed %v, capture_method %s",
			id, status, paid, failed, u.target.text("capture_method"))
		if undone := u.refuseDrift(diff); undone != nil {
			return *undone, nil
		}
	}
	return u.release(path, status)
}

// release gives an intent's money back: what was taken, or what is held.
func (u *undoRun) release(path, status string) (activities.Undone, error) {
	id := u.target.text("id")
	if status == "succeeded" {
		err := u.giveBack(path, u.entry.Token)
		u.action.reach("given-back")
		if err != nil {
			return activities.Undone{}, err
		}
		return u.reportRepaid()
	}
	if _, err := u.postOnce(path+"/cancel", &stripe.Params{}, deriveKey(u.entry.Token, "off")); err != nil && !isDenied(err) {
		return activities.Undone{}, err
	}
	u.action.reach("canceled")
	o, err := u.get(path)
	if err == nil && o.text("status") != "canceled" {
		err = activities.Errorf(activities.ActionFailed, "payment_intent %s is %s after it was canceled", id, o.text("status"))
	}
	if err != nil {
		return activities.Undone{}, err
	}
	return u.reportFreed()
}

func undoCapture(u *undoRun) (activities.Undone, error) {
	if u.target == nil || !u.arrived || u.target.text("status") != "succeeded" {
		return u.nothingDone()
	}
	return u.release(u.req.parents[0], "succeeded")
}

func undoCancel(u *undoRun) (activities.Undone, error) {
	if u.target == nil || !u.arrived || u.target.text("status") != "canceled" {
		return u.nothingDone()
	}
	return activities.Undone{Outcome: activities.Final, Observed: fmt.Sprintf("payment_intent %s is canceled for good", u.target.text("id"))}, nil
}

func undoRefund(u *undoRun) (activities.Undone, error) {
	made, undone, err := u.made()
	if err != nil || undone != nil {
		return orZero(undone), err
	}
	if len(made) == 0 {
		return u.nothingDone()
	}
	o := made[0]
	id, path := o.text("id"), u.req.list+"/"+o.text("id")
	if _, err := u.note(path, u.action.kind.mark(fenceMark), u.entry.Token, deriveKey(u.entry.Token, "fence", id)); err != nil {
		return activities.Undone{}, err
	}
	if o.text("status") == "requires_action" {
		if _, err := u.postOnce(path+"/cancel", &stripe.Params{}, deriveKey(u.entry.Token, "off")); err != nil && !isDenied(err) {
			return activities.Undone{}, err
		}
		if o, err = u.get(path); err != nil {
			return activities.Undone{}, err
		}
	}
	switch o.text("status") {
	case "canceled":
		return compensated(fmt.Sprintf("refund %s is canceled", id))
	case "failed":
		return activities.Undone{Outcome: activities.Nothing, Observed: fmt.Sprintf("refund %s has failed", id)}, nil
	}
	return activities.Undone{Outcome: activities.Final, Observed: fmt.Sprintf("refund %s is %s: the money is the customer's again", id, o.text("status"))}, nil
}

// made are the objects that carry the token; or how the undo has to end without looking at them.
func (u *undoRun) made() (made []object, undone *activities.Undone, err error) {
	made, complete, err := u.search(u.req, u.entry)
	if err != nil {
		return nil, nil, err
	}
	if len(made) == 0 && !complete {
		return nil, &activities.Undone{Outcome: activities.Unknown, Observed: "too many objects were made since to see whether the request had acted; its key is blocked"}, nil
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
