package stripe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// The probe tells of a forward whose answer was lost whether it happened.
func TestProbeOfALostForward(t *testing.T) {
	b := newBench(t)
	others := b.theirs()
	held := b.intent("capture_method", "manual")
	b.post("/v1/payment_intents/" + held + "/confirm")
	paid := b.intent()
	b.post("/v1/payment_intents/" + paid + "/confirm")
	for _, c := range []struct {
		action, path string
		with         map[string]any
	}{
		{"customer.create", "/v1/customers", map[string]any{"name": "Ada"}},
		{"product.create", "/v1/products", map[string]any{"name": "Other"}},
		{"price.create", "/v1/prices", map[string]any{"product": others.product, "currency": "eur", "unit_amount": 5}},
		{"coupon.create", "/v1/coupons", map[string]any{"percent_off": 10}},
		{"payment_intent.create", "/v1/payment_intents", map[string]any{"amount": 100, "currency": "eur"}},
		{"subscription.create", "/v1/subscriptions", map[string]any{"customer": others.customer, "price": others.price}},
		{"payment_intent.confirm", "/v1/payment_intents/*/confirm", map[string]any{"payment_intent": b.intent()}},
		{"payment_intent.capture", "/v1/payment_intents/*/capture", map[string]any{"payment_intent": held}},
		{"payment_intent.cancel", "/v1/payment_intents/*/cancel", map[string]any{"payment_intent": b.intent()}},
		{"refund.create", "/v1/refunds", map[string]any{"payment_intent": paid}},
	} {
		t.Run(c.action, func(t *testing.T) {
			s := b.step(c.action, c.with)
			s.sees(activities.AsBefore) // it was never sent
			b.em.Inject(emulator.Fault{On: emulator.Request("POST", c.path), Do: emulator.Hold, Times: 1})
			s.fails(activities.ActionFailed)
			s.sees(activities.AsBefore)
			b.em.Deliver()
			s.sees(activities.AsLeft)
			b.em.Mend()
			s.applied()
			s.sees(activities.AsLeft)
		})
	}
}

func (s *step) sees(want activities.State) {
	s.t.Helper()
	before := s.em.State()
	o, err := s.elsewhere().action.Observe(s.t.Context(), s.entry)
	require.NoError(s.t, err)
	require.Equal(s.t, want, o.State, o.Detail)
	require.Equal(s.t, before, s.em.State(), "a probe changes nothing")
}
