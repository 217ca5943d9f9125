package stripe

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// undoSubscription cancels the token's subscriptions, refunds what was paid for them, and voids
// their open invoices.
func undoSubscription(u *undoRun) (activities.Undone, error) {
	made, undone, err := u.findOwn()
	if err != nil || undone != nil {
		return orZero(undone), err
	}
	if len(made) == 0 {
		return u.reportNothing()
	}
	var seen, residue, losses []string
	for _, o := range made {
		if undone, err := u.cancelSubscription(o); err != nil || undone != nil {
			return orZero(undone), err
		}
		seen = append(seen, fmt.Sprintf("subscription %s is canceled", o.text("id")))
		left, back, err := u.clearInvoices(o.text("id"))
		if err != nil {
			return activities.Undone{}, err
		}
		if len(back) > 0 {
			losses = []string{lossFee, lossMails}
		}
		residue = append(residue, left...)
		seen = append(seen, back...)
	}
	result, err := compensated(strings.Join(seen, "; "), append(losses, lossVisible)...)
	if len(residue) > 0 {
		result.Outcome, result.Losses = activities.Residue, append(residue, result.Losses...)
	}
	return result, err
}

func (u *undoRun) cancelSubscription(o object) (*activities.Undone, error) {
	k, id := u.action.kind, o.text("id")
	path := u.req.list + "/" + id
	if o.text("status") != "canceled" {
		drift, err := u.findDrift(k, u.req, o)
		if err != nil {
			return nil, err
		}
		if drift != nil && drift.Digest != u.decision.Force {
			undone := driftedOutcome(drift, "subscription %s was changed since; it was left untouched", id)
			return &undone, nil
		}
	}
	if _, err := u.writeNote(path, k.mark(fenceMark), u.entry.Token, deriveKey(u.entry.Token, "fence", id)); err != nil {
		return nil, err
	}
	u.action.reachPoint("marked")
	if o.text("status") == "canceled" {
		return nil, nil
	}
	if err := u.deleteObject(path, formParams("invoice_now", "false", "prorate", "false")); err != nil {
		return nil, err
	}
	u.action.reachPoint("canceled")
	o, err := u.getObject(path)
	if err != nil {
		return nil, err
	}
	if o.text("status") != "canceled" {
		return nil, activities.Errorf(activities.ActionFailed, "subscription %s is %s after it was canceled", id,
			o.text("status"))
	}
	return nil, nil
}

// clearInvoices voids or refunds every invoice of a subscription. It returns what remains, and what
// it did.
func (u *undoRun) clearInvoices(subscription string) (residue, seen []string, err error) {
	var invoices []object
	if _, err := u.listObjects("/v1/invoices", url.Values{"subscription": {subscription}},
		func(o object) { invoices = append(invoices, o) }); err != nil {
		return nil, nil, err
	}
	for _, in := range invoices {
		id, status, intent := in.text("id"), in.text("status"), in.text("payment_intent")
		switch {
		case status == "open":
			if _, err := u.postOnce("/v1/invoices/"+id+"/void", formParams(), deriveKey(u.entry.Token, "void", id)); err != nil {
				return nil, nil, err
			}
			seen = append(seen, fmt.Sprintf("invoice %s is void", id))
		case status == "void":
			seen = append(seen, fmt.Sprintf("invoice %s is void", id))
		case status == "paid" && in.number("amount_paid") > 0 && intent != "":
			if err := u.refundRest("/v1/payment_intents/"+intent, u.entry.Token); err != nil {
				return nil, nil, err
			}
			seen = append(seen, fmt.Sprintf("invoice %s is refunded", id))
		case status == "draft", status == "paid" && in.number("amount_paid") > 0:
			residue = append(residue,
				fmt.Sprintf("invoice %s is %s, and %d of it was paid in another way", id, status, in.number("amount_paid")))
		}
		u.action.reachPoint("invoice-cleared")
	}
	return residue, seen, nil
}
