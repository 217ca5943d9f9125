package stripe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// Stripe shows nothing of a step that has succeeded: an account whose test data was deleted, or an
// object that somebody deleted and whose key is forgotten. That is never told as nothing to undo.
func TestWhatTheHistoryKnowsAsDoneIsNeverNothingToUndo(t *testing.T) {
	b := newBench(t)
	others := b.theirs()
	held := b.intent("capture_method", "manual")
	b.post("/v1/payment_intents/" + held + "/confirm")
	paid := b.intent()
	b.post("/v1/payment_intents/" + paid + "/confirm")
	open := b.intent()
	before, counters := b.em.Live(), b.em.Counters()
	for _, c := range []struct {
		action string
		with   map[string]any
	}{
		{"customer.create", map[string]any{"name": "Ada"}},
		{"product.create", map[string]any{"name": "Other"}},
		{"price.create", map[string]any{"product": others.product, "currency": "eur", "unit_amount": 5}},
		{"coupon.create", map[string]any{"percent_off": 10}},
		{"payment_intent.create", map[string]any{"amount": 100, "currency": "eur"}},
		{"subscription.create", map[string]any{"customer": others.customer, "price": others.price}},
		{"payment_intent.confirm", map[string]any{"payment_intent": open}},
		{"payment_intent.capture", map[string]any{"payment_intent": held}},
		{"refund.create", map[string]any{"payment_intent": paid}},
	} {
		t.Run(c.action, func(t *testing.T) {
			s := b.step(c.action, c.with)
			for range 2 {
				undone, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
				require.NoError(t, err)
				require.Equal(t, activities.Unknown, undone.Outcome, undone.Observed)
				require.Zero(t, undone.LookAgain)
				require.Contains(t, undone.Observed, "the task knows that the step had succeeded")
			}
			s.fenced()
		})
	}
	require.Equal(t, before, b.em.Live())
	require.Equal(t, counters, b.em.Counters())
}

func TestWhatIsDoneAndThereIsUndoneAsEver(t *testing.T) {
	b := newBench(t)
	s := b.paying()
	s.applied()
	b.clock.Advance(40 * 24 * time.Hour) // its key is forgotten
	undone, err := s.action.Undo(t.Context(), s.entry, activities.Decision{Done: true})
	require.NoError(t, err)
	require.True(t, undone.Outcome.Clean(), undone.Observed)
	require.NotEqual(t, activities.Nothing, undone.Outcome)
}
