package stripe

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

var confirms = emulator.Request("POST", "/v1/payment_intents/*/confirm")

func TestALostConfirmThatArrivesAnHourLateChargesNothing(t *testing.T) {
	b := newBench(t)
	intent := b.step("payment_intent.create",
		map[string]any{"amount": 2000, "currency": "eur", "payment_method": "pm_card_visa"})
	pi := intent.applied()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	b.em.Inject(emulator.Fault{On: confirms, Do: emulator.Hold, Times: 1})
	confirm.fails(activities.ActionFailed)
	require.Equal(t, 1, b.em.Held())

	confirm.undone(activities.Nothing)
	require.Equal(t, "requires_confirmation", b.em.Object(pi)["status"],
		"an intent that was never confirmed is left as it was")
	b.clock.Advance(time.Hour)
	require.Equal(t, []int{400}, b.em.Deliver())
	b.money(0, 0)
	confirm.undone(activities.Nothing)
	intent.undone(activities.Compensated)
	b.money(0, 0)
	b.nothingLives()
	confirm.fenced()
}

func TestLateRequestsDoNothing(t *testing.T) {
	b := newBench(t)
	cus := b.paying().applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	held, paid := b.intent("capture_method", "manual"), b.intent()
	b.post("/v1/payment_intents/" + held + "/confirm")
	b.post("/v1/payment_intents/" + paid + "/confirm")
	before := b.em.State().Live
	counters := b.em.Counters()
	for _, c := range []struct {
		action, path string
		with         map[string]any
	}{
		{"customer.create", "/v1/customers", map[string]any{"name": "Ada"}},
		{"product.create", "/v1/products", map[string]any{"name": "Other"}},
		{"price.create", "/v1/prices", map[string]any{"product": prod, "currency": "eur", "unit_amount": 5}},
		{"coupon.create", "/v1/coupons", map[string]any{"percent_off": 10}},
		{"payment_intent.create", "/v1/payment_intents", map[string]any{"amount": 100, "currency": "eur"}},
		{"subscription.create", "/v1/subscriptions", map[string]any{"customer": cus, "price": price}},
		{"payment_intent.capture", "/v1/payment_intents/*/capture", map[string]any{"payment_intent": held}},
		{"payment_intent.cancel", "/v1/payment_intents/*/cancel", map[string]any{"payment_intent": held}},
		{"refund.create", "/v1/refunds", map[string]any{"payment_intent": paid}},
	} {
		t.Run(c.action, func(t *testing.T) {
			s := b.step(c.action, c.with)
			b.em.Inject(emulator.Fault{On: emulator.Request("POST", c.path), Do: emulator.Hold, Times: 1})
			s.fails(activities.ActionFailed)
			s.undone(activities.Nothing)
			b.clock.Advance(time.Hour)
			require.Len(t, b.em.Deliver(), 1)
			s.undone(activities.Nothing)
			require.Equal(t, before, b.em.Live())
			require.Equal(t, counters, b.em.Counters())
		})
	}
}

func TestALateUndoDoesNothingEither(t *testing.T) {
	b := newBench(t)
	price := b.step("price.create", map[string]any{"product": b.theirs().product, "currency": "eur", "unit_amount": 5})
	id := price.applied()
	b.em.Inject(emulator.Fault{Times: 1, Do: emulator.Hold,
		On: func(r emulator.Received) bool { return strings.Contains(r.Key, ".off.") }})
	_, err := price.undo()
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err))
	price.undone(activities.Compensated)
	b.post("/v1/prices/"+id, "active", "true")
	require.Len(t, b.em.Deliver(), 1)
	require.Equal(t, true, b.em.Object(id)["active"], "what someone did since stays")
}

func TestAnswersThatAreLost(t *testing.T) {
	for name, do := range map[string]emulator.Effect{"dropped": emulator.DropAfter, "500": emulator.FailAfter} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			customer := b.paying()
			b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: do, Times: 1})
			_, first := customer.apply()
			cus := customer.applied()
			if do == emulator.FailAfter { // net/http sends a request with a key again by itself when the connection breaks
				require.Equal(t, activities.ActionFailed, activities.TypeOf(first))
			}
			require.Len(t, b.em.Live(), 1, "applied once")

			prod := b.step("product.create", map[string]any{"name": "Plan"})
			pr := b.step("price.create",
				map[string]any{"product": prod.applied(), "currency": "eur", "unit_amount": 1200, "interval": "month"})
			subscription := b.step("subscription.create", map[string]any{"customer": cus, "price": pr.applied()})
			b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/subscriptions"), Do: do, Times: 2})
			_, _ = subscription.apply()
			b.money(1, 0)
			subscription.undone(activities.Compensated)
			b.money(1, 1)
			b.em.Mend()

			pi := b.intent()
			confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
			b.em.Inject(emulator.Fault{On: confirms, Do: do, Times: 2})
			_, _ = confirm.apply()
			b.em.Mend()
			r, err := confirm.apply()
			require.NoError(t, err)
			require.Equal(t, "succeeded", r.Outputs["status"])
			b.money(2, 1)
			confirm.undone(activities.Compensated)
			b.money(2, 2)

			pr.undone(activities.Compensated)
			prod.undone(activities.Compensated)
			u, err := customer.undo()
			require.NoError(t, err)
			require.Equal(t, activities.Compensated, u.Outcome)
			b.nothingLives()
			again, err := customer.undo()
			require.NoError(t, err)
			require.True(t, again.Outcome.Clean())
			b.nothingLives()
			_, err = customer.apply()
			require.Error(t, err)
			b.nothingLives()
		})
	}
}

func TestA500ThatStaysIsAnUnknownOutcome(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.FailBefore, Times: 1})
	customer.fails(activities.ActionFailed)
	customer.fails(activities.UnknownOutcome)
	customer.undone(activities.Nothing)

	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": b.intent()})
	b.em.Inject(emulator.Fault{On: confirms, Do: emulator.FailBefore, Times: 1})
	confirm.fails(activities.ActionFailed)
	confirm.fails(activities.UnknownOutcome)
	confirm.undone(activities.Nothing)
	b.money(0, 0)
}

func TestAnUndoGetsPastAnswersThatStay500(t *testing.T) {
	b := newBench(t)
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create", map[string]any{"product": prod, "currency": "eur", "unit_amount": 5})
	pr := price.applied()
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/prices/"+pr), Do: emulator.FailBefore, Times: 2})
	for range 2 {
		_, err := price.undo()
		require.Equal(t, activities.ActionFailed, activities.TypeOf(err))
	}
	price.undone(activities.Compensated)

	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": b.intent()})
	confirm.applied()
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/refunds"), Do: emulator.FailAfter, Times: 1})
	_, err := confirm.undo()
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err))
	confirm.undone(activities.Compensated)
	b.money(1, 1)
}

func TestWhatIsRetriedAndWhatIsNot(t *testing.T) {
	b := newBench(t)
	on := emulator.Request("POST", "/v1/customers")
	s := b.paying()
	b.em.Inject(emulator.Fault{On: on, Do: emulator.RateLimit, RetryAfter: 7 * time.Second, Times: 1})
	require.Equal(t, 7*time.Second, s.fails(activities.ActionFailed).NextRetry)
	b.em.Inject(emulator.Fault{On: on, Do: emulator.Garble, Times: 1})
	require.NotContains(t, s.fails(activities.ActionFailed).Message, "html")
	b.em.Inject(emulator.Fault{On: on, Do: emulator.DropBefore, Times: 3})
	s.fails(activities.ActionFailed)
	b.em.Mend()
	s.applied()

	require.Contains(t,
		b.step("price.create", map[string]any{"product": "prod_none", "currency": "eur", "unit_amount": 5}).
			fails(activities.ActionDenied).Message, "resource_missing")
	b.step("payment_intent.confirm", map[string]any{"payment_intent": "pi_none"}).fails(activities.ActionDenied)
	b.step("payment_intent.confirm", map[string]any{"payment_intent": "../customers"}).fails(activities.Refused)
	b.step("customer.create", map[string]any{"metadata": map[string]any{"unwind_token": "mine"}}).fails(activities.Refused)
	b.step("customer.create", map[string]any{"nome": "Ada"}).fails(activities.Refused)
}

func TestASecondSenderWaitsForTheFirst(t *testing.T) {
	b := newBench(t)
	s := b.paying()
	release, seen := make(chan struct{}), make(chan struct{})
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Wait, Until: release, Times: 1,
		Seen: func(emulator.Received) { close(seen) }})
	patient := b.worker(Config{HTTPTimeout: 10 * time.Second})
	s.action = b.actionOf(patient, s.action.kind)
	applied, undone := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.apply(); applied <- err }()
	<-seen
	conflict := make(chan struct{}, 100)
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Wait, Until: closed(), Times: 1,
		Seen: func(emulator.Received) { conflict <- struct{}{} }})
	go func() { _, err := s.undo(); undone <- err }()
	<-conflict // the undo has asked, and was told that the key is in use
	close(release)
	require.NoError(t, <-undone)
	if err := <-applied; err != nil {
		require.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
	b.nothingLives()
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestTheBreakerOpensForEachDirectionApart(t *testing.T) {
	b := newBench(t)
	b.service = b.worker(Config{BreakerTrips: 3, BreakerPause: time.Minute})
	s := b.paying()
	s.applied()
	broken := b.paying()
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Garble})
	for range 3 {
		broken.fails(activities.ActionFailed)
	}
	e := broken.fails(activities.BreakerOpen)
	require.Greater(t, e.NextRetry, 50*time.Second)
	b.em.Mend()
	broken.fails(activities.BreakerOpen)
	s.action = b.actionOf(b.service, s.action.kind)
	u, err := s.undo()
	require.NoError(t, err, "forwards that fail never block an unwind")
	require.Equal(t, activities.Compensated, u.Outcome)
}

func TestOurOwnCancellationAndDeclinedCardsOpenNoBreaker(t *testing.T) {
	b := newBench(t)
	b.service = b.worker(Config{BreakerTrips: 1, BreakerPause: time.Minute, HTTPTimeout: 10 * time.Second})
	_, err := b.service.journalID(t.Context())
	require.NoError(t, err)
	b.step("payment_intent.confirm",
		map[string]any{"payment_intent": b.intent("payment_method", emulator.CardDeclined)}).fails(activities.ActionDenied)

	s := b.paying()
	ctx, cancel := context.WithCancel(t.Context())
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Hold, Times: 1,
		Seen: func(emulator.Received) { cancel() }})
	_, err = s.action.Apply(ctx, s.entry, activities.Step{With: s.with}, "")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*activities.Error), "the wrapper takes it for a cancellation")
	s.applied()
}

func TestTheBreakerTriesAgain(t *testing.T) {
	b := newBench(t)
	b.service = b.worker(Config{BreakerTrips: 1, BreakerPause: 50 * time.Millisecond})
	s := b.paying()
	b.em.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Garble, Times: 1})
	s.fails(activities.ActionFailed)
	require.Eventually(t, func() bool { _, err := s.apply(); return err == nil }, time.Minute, 10*time.Millisecond)
}
