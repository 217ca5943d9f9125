package stripe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

func TestAWholeChainLeavesNothing(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	product := b.step("product.create", map[string]any{"name": "Plan"})
	prod := product.applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"})
	pr := price.applied()
	coupon := b.step("coupon.create", map[string]any{"percent_off": 25})
	cpn := coupon.applied()
	subscription := b.step("subscription.create", map[string]any{"customer": cus, "price": pr, "coupon": cpn})
	subscription.applied()
	b.money(1, 0)
	require.EqualValues(t, 900, b.em.Counters().Charged)
	require.Len(t, b.em.Live(), 6, "customer, product, price, coupon, subscription, and the money")

	undone := subscription.undone(activities.Compensated)
	require.Contains(t, undone.Observed, "is refunded")
	coupon.undone(activities.Compensated)
	price.undone(activities.Compensated)
	u := product.undone(activities.Compensated)
	require.Equal(t, []string{"product " + prod + " stays, inactive"}, u.Losses)
	customer.undone(activities.Compensated)

	b.nothingLives()
	b.money(1, 1)
	require.EqualValues(t, 900, b.em.Counters().Refunded)
	for _, s := range []*step{customer, product, price, coupon, subscription} {
		s.fenced()
	}
	b.nothingLives()
	b.money(1, 1)
}

func TestAProductWithoutPricesIsExactlyAsBefore(t *testing.T) {
	b := newBench(t)
	s := b.step("product.create", map[string]any{"id": "prod_mine", "name": "Plan"})
	require.Equal(t, "prod_mine", s.applied())
	s.undone(activities.Restored)
	b.nothingLives()
}

func TestUndoWithoutApplyBlocksALateOne(t *testing.T) {
	b := newBench(t)
	cus := b.paying().applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	held := b.intent("capture_method", "manual")
	b.post("/v1/payment_intents/" + held + "/confirm")
	paid := b.intent()
	b.post("/v1/payment_intents/" + paid + "/confirm")
	open := b.intent()
	before, counters := b.em.Live(), b.em.Counters()

	for action, with := range map[string]map[string]any{
		"customer.create":        {"name": "Ada"},
		"product.create":         {"name": "Other"},
		"price.create":           {"product": prod, "currency": "eur", "unit_amount": 5},
		"coupon.create":          {"amount_off": 100, "currency": "eur"},
		"payment_intent.create":  {"amount": 100, "currency": "eur"},
		"subscription.create":    {"customer": cus, "price": price},
		"payment_intent.confirm": {"payment_intent": open},
		"payment_intent.capture": {"payment_intent": held},
		"payment_intent.cancel":  {"payment_intent": open},
		"refund.create":          {"payment_intent": paid},
	} {
		t.Run(action, func(t *testing.T) {
			s := b.step(action, with)
			s.undone(activities.Nothing)
			s.fenced()
			require.Equal(t, before, b.em.Live())
			require.Equal(t, counters, b.em.Counters())
		})
	}
}

func TestConfirmAndCapture(t *testing.T) {
	b := newBench(t)
	intent := b.step("payment_intent.create", map[string]any{
		"amount": 2000, "currency": "eur", "payment_method": "pm_card_visa", "capture_method": "manual",
		"receipt_email": "ada@example.com"})
	pi := intent.applied()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	r, err := confirm.apply()
	require.NoError(t, err)
	require.Equal(t, "requires_capture", r.Outputs["status"])
	capture := b.step("payment_intent.capture", map[string]any{"payment_intent": pi, "amount": 1500})
	r, err = capture.apply()
	require.NoError(t, err)
	require.EqualValues(t, 1500, r.Outputs["amount_received"])
	again, err := capture.elsewhere().apply()
	require.NoError(t, err)
	require.Equal(t, r, again)
	b.money(1, 0)

	capture.undone(activities.Compensated)
	require.Equal(t, emulator.Counters{Holds: 1, Charges: 1, Charged: 1500, Refunds: 1, Refunded: 1500, Mails: 2},
		b.em.Counters())
	confirm.undone(activities.Compensated)
	u := intent.undone(activities.Compensated)
	require.Contains(t, u.Losses[0], "refunded")
	b.nothingLives()
	b.money(1, 1)
	capture.fenced()
	confirm.fenced()
	intent.fenced()
}

func TestAHoldIsReleased(t *testing.T) {
	b := newBench(t)
	pi := b.intent("capture_method", "manual")
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	confirm.applied()
	u := confirm.undone(activities.Compensated)
	require.Contains(t, u.Observed, "holds no money")
	b.nothingLives()
	b.money(0, 0)
	confirm.fenced()
}

func TestAChargeIsGivenBackOnce(t *testing.T) {
	b := newBench(t)
	pi := b.intent()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	confirm.applied()
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := confirm.elsewhere().undo()
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	confirm.undone(activities.Compensated)
	b.nothingLives()
	b.money(1, 1)
}

func TestWhatCannotBeTakenBack(t *testing.T) {
	b := newBench(t)
	pi := b.intent()
	cancel := b.step("payment_intent.cancel", map[string]any{"payment_intent": pi})
	cancel.applied()
	cancel.undone(activities.Final)
	require.Equal(t, "canceled", b.em.Object(pi)["status"])

	paid := b.intent()
	b.post("/v1/payment_intents/" + paid + "/confirm")
	refund := b.step("refund.create", map[string]any{"payment_intent": paid, "amount": 500})
	refund.applied()
	refund.undone(activities.Final)
	b.money(1, 1)
	require.EqualValues(t, 500, b.em.Counters().Refunded)
}

func TestADeclinedCard(t *testing.T) {
	b := newBench(t)
	customer := b.step("customer.create", map[string]any{"name": "Ada", "payment_method": emulator.CardDeclined})
	cus := customer.applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	subscription := b.step("subscription.create", map[string]any{"customer": cus, "price": price})
	subscription.fails(activities.ActionDenied)
	subscription.undone(activities.Nothing)

	pi := b.intent("payment_method", emulator.CardDeclined)
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	e := confirm.fails(activities.ActionDenied)
	require.Contains(t, e.Message, "402 card_error card_declined")
	require.NotContains(t, e.Message, "secret")
	// Somebody pays it with another card: that is not the step's to take back.
	b.post("/v1/payment_intents/"+pi+"/confirm", "payment_method", "pm_card_visa")
	u, err := confirm.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	b.money(1, 0)
	u, err = confirm.undoForced(u.Drift.Digest)
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	b.money(1, 1)

	person := b.intent("payment_method", emulator.CardNeedsPerson)
	b.step("payment_intent.confirm", map[string]any{"payment_intent": person}).fails(activities.ActionDenied)
}

func TestAnOpenInvoiceIsVoid(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	s := b.step("subscription.create", map[string]any{"customer": cus, "price": price})
	o := b.post("/v1/subscriptions", "customer", cus, "items[0][price]", price, "collection_method", "send_invoice",
		"metadata[unwind_token]", s.entry.Token)
	require.Equal(t, 1, b.em.Counters().Mails)
	s.undone(activities.Compensated)
	require.Equal(t, "void", b.em.Object(o["latest_invoice"].(string))["status"])
	b.money(0, 0)
}
