package stripe

import (
	"path"
	"strconv"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// isReturned says whether an intent is fully refunded, as its charge states: that counts what a
// partial capture released as refunded, so adding up refunds would not tell.
func (c *session) isReturned(intent object) (all bool, charge object, err error) {
	id := intent.text("latest_charge")
	if id == "" {
		return true, nil, nil
	}
	charge, err = c.getObject("/v1/charges/" + id)
	return charge["refunded"] == true, charge, err
}

// refundRest refunds what is left of an intent's money. Each refund's key holds the amount refunded
// before it, so that two undos refund the same money once.
func (c *session) refundRest(intentPath, token string) error {
	for range resends {
		intent, err := c.getObject(intentPath)
		if err != nil {
			return err
		}
		all, charge, err := c.isReturned(intent)
		if all || err != nil {
			return err
		}
		_, err = c.postOnce("/v1/refunds",
			formParams("payment_intent", path.Base(intentPath), "metadata["+tokenMark+"]", token),
			deriveKey(token, "refund", path.Base(intentPath), strconv.FormatInt(charge.number("amount_refunded"), 10)))
		if p := problemIn(err); p != nil && p.code == string(stripe.ErrorCodeChargeAlreadyRefunded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return activities.Errorf(activities.ActionFailed, "%s: it is not fully refunded yet", intentPath)
}
