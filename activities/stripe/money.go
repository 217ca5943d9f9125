package stripe

import (
	"path"
	"strconv"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// isReturned says whether all of an intent's money was given back. The charge itself knows: what it calls refunded includes
// what a partial capture has released, so that no sum of ours would tell.
func (c *session) isReturned(intent object) (all bool, charge object, err error) {
	id := intent.text("latest_charge")
	if id == "" {
		return true, nil, nil
	}
	charge, err = c.get("/v1/charges/" + id)
	return charge["refunded"] == true, charge, err
}

// giveBack refunds what is left of an intent's money. Each refund's key names what was given back before it, so that two
// undos give the same money back once.
func (c *session) giveBack(intentPath, token string) error {
	for range resends {
		intent, err := c.get(intentPath)
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
	return activities.Errorf(activities.ActionFailed, "%s: not all of the money is given back yet", intentPath)
}
