package stripe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// sweptLater undoes a step of which nothing is seen yet, lets the time pass that the undo asks for
// and the held requests arrive, and returns what the late sweep's undo says.
func (s *step) sweptLater() activities.Undone {
	s.t.Helper()
	first, err := s.undo()
	require.NoError(s.t, err)
	require.Equal(s.t, activities.Nothing, first.Outcome, first.Observed)
	require.Equal(s.t, lateLookDelay, first.LookAgain, first.Observed)
	require.Contains(s.t, first.Observed, "no proof yet")
	again, err := s.elsewhere().undo()
	require.NoError(s.t, err)
	require.Equal(s.t, first, again, "as long as nothing is new, the answer is the same")
	s.clock.Advance(first.LookAgain)
	s.em.Deliver()
	swept, err := s.elsewhere().undo()
	require.NoError(s.t, err)
	return swept
}

// A request comes out of a stopped worker, so late that neither its own key nor the undo's use of
// it is remembered.
func TestALateSweepTakesBackWhatArrivedAfterItsFence(t *testing.T) {
	b := newBench(t)
	others := b.theirs()
	held := b.intent("capture_method", "manual")
	b.post("/v1/payment_intents/" + held + "/confirm")
	open := b.intent()
	before := b.em.Live()
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
		{"payment_intent.confirm", "/v1/payment_intents/*/confirm", map[string]any{"payment_intent": open}},
		{"payment_intent.capture", "/v1/payment_intents/*/capture", map[string]any{"payment_intent": held}},
	} {
		t.Run(c.action, func(t *testing.T) {
			s := b.step(c.action, c.with)
			b.em.Inject(emulator.Fault{On: emulator.Request("POST", c.path), Do: emulator.Hold, Times: 1})
			s.fails(activities.ActionFailed)
			b.clock.Advance(30 * time.Hour) // the task waited at a gate meanwhile
			undone := s.sweptLater()
			require.True(t, undone.Outcome.Clean())
			require.NotEqual(t, activities.Nothing, undone.Outcome, undone.Observed)
			require.Zero(t, undone.LookAgain, "it was found: there is nothing more to look for")
			counters := b.em.Counters()
			require.Equal(t, counters.Charged, counters.Refunded)
			if c.action != "payment_intent.confirm" && c.action != "payment_intent.capture" { // they end the intent
				require.Equal(t, before, b.em.Live())
			}
			s.fenced()
		})
	}
}

// Stripe answers 500, and finishes later what it had begun.
func TestALateSweepFindsWhatA500HasLeft(t *testing.T) {
	b := newBench(t)
	s := b.step("customer.create", map[string]any{"name": "Ada"})
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.FailBefore, Times: 1})
	s.fails(activities.ActionFailed)
	first, err := s.undo()
	require.NoError(t, err)
	require.Equal(t, lateLookDelay, first.LookAgain)
	b.post("/v1/customers", "name", "Ada", "metadata["+tokenMark+"]", s.entry.Token)
	b.clock.Advance(first.LookAgain)
	undone, err := s.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, undone.Outcome, undone.Observed)
	require.Zero(t, undone.LookAgain)
	b.nothingLives()
}

func TestASweepThatFindsNothingSaysSoAgain(t *testing.T) {
	b := newBench(t)
	s := b.step("payment_intent.create", map[string]any{"amount": 100, "currency": "eur"})
	b.clock.Advance(30 * time.Hour)
	undone := s.sweptLater()
	require.Equal(t, activities.Nothing, undone.Outcome, undone.Observed)
	require.Equal(t, lateLookDelay, undone.LookAgain)
	b.nothingLives()
}

func TestProofNeedsNoSweep(t *testing.T) {
	b := newBench(t)
	others := b.theirs()
	for action, with := range map[string]map[string]any{
		"customer.create":        {"name": "Ada"},
		"price.create":           {"product": others.product, "currency": "eur", "unit_amount": 5},
		"subscription.create":    {"customer": others.customer, "price": others.price},
		"payment_intent.confirm": {"payment_intent": b.intent()},
	} {
		t.Run(action, func(t *testing.T) {
			fresh := b.step(action, with)
			require.Zero(t, fresh.undone(activities.Nothing).LookAgain, "the key is younger than a day")
			done := b.step(action, with)
			done.applied()
			b.clock.Advance(30 * time.Hour)
			undone, err := done.undo()
			require.NoError(t, err)
			require.Equal(t, activities.Compensated, undone.Outcome)
			require.Zero(t, undone.LookAgain, "it was found")
		})
	}
	t.Run("a verb that was never begun", func(t *testing.T) {
		s := b.step("payment_intent.confirm", map[string]any{"payment_intent": b.intent()})
		b.clock.Advance(30 * time.Hour)
		require.Zero(t, s.undone(activities.Nothing).LookAgain, "its record comes before its request")
	})
}
