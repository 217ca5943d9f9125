package stripe

import (
	"path"
	"strconv"

	"github.com/seed-62bf7108/unwind/activities"
)

// unreturned is how much of an intent's money was taken and not given back.
func (c *session) unreturned(intent object) (int64, error) {
	charge := intent.text("latest_charge")
	if charge == "" {
		return 0, nil
	}
	o, err := c.get("/v1/charges/" + charge)
	if err != nil {
		return 0, err
	}
	return o.number("amount_captured") - o.number("amount_refunded"), nil
}

// giveBack refunds what is left of an intent's money. Each refund's key names how much was left before it, so that two
// undos give the same money back once.
func (c *session) giveBack(intentPath, token string) error {
	for range resends {
		intent, err := c.get(intentPath)
		if err != nil {
			return err
		}
		left, err := c.unreturned(intent)
		if err != nil || left <= 0 {
			return err
		}
		_, err = c.once("/v1/refunds",
			form("payment_intent", path.Base(intentPath), "amount", strconv.FormatInt(left, 10), "metadata["+tokenMark+"]", token),
			key(token, "refund", path.Base(intentPath), strconv.FormatInt(left, 10)))
		if err != nil && !denied(err) { // denied: someone else gave some of it back; look again
			return err
		}
	}
	return activities.Errorf(activities.ActionFailed, "%s: not all of the money could be given back yet", intentPath)
}
