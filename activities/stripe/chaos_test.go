package stripe

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// Whichever request of a forward and its undo breaks, and however it breaks: retries end, the world
// is as before, and no money is missing.
func TestAnyRequestMayBreak(t *testing.T) {
	effects := map[string]emulator.Effect{
		"dropped before": emulator.DropBefore, "dropped after": emulator.DropAfter, "500 before": emulator.FailBefore,
		"500 after": emulator.FailAfter, "429": emulator.RateLimit, "a proxy's page": emulator.Garble,
	}
	flows := map[string]func(b *bench) *step{
		"customer": func(b *bench) *step { return b.paying() },
		"price": func(b *bench) *step {
			return b.step("price.create", map[string]any{"product": b.theirs().product, "currency": "eur", "unit_amount": 5})
		},
		"intent": func(b *bench) *step {
			return b.step("payment_intent.create", map[string]any{"amount": 5, "currency": "eur"})
		},
		"subscription": func(b *bench) *step {
			o := b.theirs()
			return b.step("subscription.create", map[string]any{"customer": o.customer, "price": o.price})
		},
		"confirm": func(b *bench) *step {
			return b.step("payment_intent.confirm", map[string]any{"payment_intent": b.intent()})
		},
		"capture": func(b *bench) *step {
			pi := b.intent("capture_method", "manual")
			b.post("/v1/payment_intents/" + pi + "/confirm")
			return b.step("payment_intent.capture", map[string]any{"payment_intent": pi, "amount": 1500})
		},
	}
	for flow, begin := range flows {
		for name, do := range effects {
			t.Run(flow+"/"+name, func(t *testing.T) {
				nth := 0
				for breakNth(t, begin, do, nth) {
					nth++
				}
				require.Greater(t, nth, 4, "no request was broken")
			})
		}
	}
}

// breakNth breaks one request, and says whether there was such a one.
func breakNth(t *testing.T, begin func(*bench) *step, do emulator.Effect, nth int) (broke bool) {
	b := newBench(t)
	s := begin(b)
	before := b.em.Live()
	var count atomic.Int64
	b.em.Inject(emulator.Fault{Do: do, On: func(emulator.Received) bool {
		hit := count.Add(1) == int64(nth+1)
		broke = broke || hit
		return hit
	}})
	for range 4 {
		_, err := s.apply()
		if err == nil || activities.TypeOf(err).Final() {
			break
		}
	}
	where := fmt.Sprintf("request %d broken", nth)
	var undone activities.Undone
	var err error
	for range 4 {
		if undone, err = s.elsewhere().undo(); err == nil {
			break
		}
		require.False(t, activities.TypeOf(err).Final(), "%s: %v", where, err)
	}
	require.NoError(t, err, where)
	require.True(t, undone.Outcome.Clean(), "%s: %+v", where, undone)
	for _, line := range b.em.Live() {
		require.Contains(t, before, line, where)
	}
	counters := b.em.Counters()
	require.Equal(t, counters.Charged, counters.Refunded, where)
	live := b.em.Live()
	b.em.Mend()
	_, err = s.apply()
	require.Error(t, err, where)
	again, err := s.undo()
	require.NoError(t, err, where)
	require.True(t, again.Outcome.Clean(), where)
	require.Equal(t, live, b.em.Live(), where)
	require.Equal(t, counters, b.em.Counters(), where)
	return broke
}

// others is what somebody else has in the account.
type others struct{ customer, product, price string }

func (b *bench) theirs() others {
	product := b.post("/v1/products", "name", "theirs")["id"].(string)
	return others{
		customer: b.post("/v1/customers", "payment_method", "pm_card_visa", "invoice_settings[default_payment_method]",
			"pm_card_visa")["id"].(string),
		product: product,
		price: b.post("/v1/prices", "product", product, "currency", "eur", "unit_amount", "700", "recurring[interval]",
			"month")["id"].(string),
	}
}
