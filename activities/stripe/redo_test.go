package stripe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// again is the next generation of a step that was rolled back; with is what its expressions resolve
// to by now.
func (s *step) again(with map[string]any) *step {
	s.t.Helper()
	next := s.step(s.entry.Step, with)
	next.entry.Redoes = s.entry.Token
	return next
}

// rolledBack undoes a step of a finished task, so that it can be done again.
func (s *step) rolledBack(want activities.Outcome) {
	s.t.Helper()
	u, err := s.action.Undo(s.t.Context(), s.entry, activities.Decision{Redoable: true})
	require.NoError(s.t, err)
	require.Equal(s.t, want, u.Outcome, u.Observed)
}

func TestAChainIsDoneAgainWithOtherIDs(t *testing.T) {
	b := newBench(t)
	type chain struct{ customer, product, price, coupon, subscription, intent, confirm, capture *step }
	var ids [2][]string
	// apply builds the chain; of is the generation that it does again.
	apply := func(generation int, of chain) (c chain) {
		made := func(of *step, action string, with map[string]any) (*step, string) {
			s := b.step(action, with)
			if of != nil {
				s = of.again(with)
			}
			id := s.applied()
			ids[generation] = append(ids[generation], id)
			return s, id
		}
		var cus, prod, pr, cpn, pi string
		c.customer, cus = made(of.customer, "customer.create",
			map[string]any{"name": "Ada", "payment_method": "pm_card_visa"})
		c.product, prod = made(of.product, "product.create", map[string]any{"name": "Plan"})
		c.price, pr = made(of.price, "price.create",
			map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"})
		c.coupon, cpn = made(of.coupon, "coupon.create", map[string]any{"percent_off": 25})
		c.subscription, _ = made(of.subscription, "subscription.create",
			map[string]any{"customer": cus, "price": pr, "coupon": cpn})
		c.intent, pi = made(of.intent, "payment_intent.create",
			map[string]any{"amount": 2000, "currency": "eur", "payment_method": "pm_card_visa", "capture_method": "manual"})
		c.confirm, _ = made(of.confirm, "payment_intent.confirm", map[string]any{"payment_intent": pi})
		c.capture, _ = made(of.capture, "payment_intent.capture", map[string]any{"payment_intent": pi})
		return c
	}
	rollBack := func(c chain) {
		for _, s := range []*step{c.capture, c.confirm, c.intent, c.subscription, c.coupon, c.price, c.product, c.customer} {
			s.rolledBack(activities.Compensated)
		}
		b.nothingLives()
	}
	first := apply(0, chain{})
	b.money(2, 0)
	rollBack(first)
	b.money(2, 2)

	next := apply(1, first)
	b.money(4, 2)
	require.Len(t, b.em.Live(), 7)
	for i, id := range ids[1] {
		require.NotEqual(t, ids[0][i], id)
	}
	live := b.em.Live()
	// Whoever wakes up late in the first generation does nothing to the second.
	for _, s := range []*step{first.capture, first.confirm, first.intent, first.subscription, first.coupon, first.price,
		first.product, first.customer} {
		s.fenced()
		s.rolledBack(activities.Compensated)
	}
	require.Equal(t, live, b.em.Live())
	b.money(4, 2)

	rollBack(next)
	b.money(4, 4)
}

func TestAnIDThatWasChosenIsUsedAgain(t *testing.T) {
	b := newBench(t)
	for action, with := range map[string]map[string]any{
		"product.create": {"id": "prod_mine", "name": "Plan"},
		"coupon.create":  {"id": "SUMMER", "percent_off": 25},
	} {
		t.Run(action, func(t *testing.T) {
			s := b.step(action, with)
			id := s.applied()
			u, err := s.undo()
			require.NoError(t, err)
			require.True(t, u.Outcome.Clean())
			again := s.again(with)
			require.Equal(t, id, again.applied())
			_, err = s.elsewhere().undo() // a late undo of the first leaves the second alone
			require.NoError(t, err)
			require.Len(t, b.em.Live(), 1)
			u, err = again.undo()
			require.NoError(t, err)
			require.True(t, u.Outcome.Clean())
			b.nothingLives()
		})
	}

	product := b.step("product.create", map[string]any{"id": "prod_priced", "name": "Plan"})
	prod := product.applied()
	price := b.step("price.create", map[string]any{"product": prod, "currency": "eur", "unit_amount": 5})
	price.applied()
	price.rolledBack(activities.Compensated)
	product.rolledBack(activities.Compensated)
	product.again(map[string]any{"id": "prod_priced", "name": "Plan"}).fails(activities.ActionDenied)
	b.nothingLives()
}

// What a rollback could not take back is not done twice.
func TestWhatStillStandsIsNotDoneAgain(t *testing.T) {
	b := newBench(t)
	paid := b.intent()
	b.post("/v1/payment_intents/" + paid + "/confirm")
	with := map[string]any{"payment_intent": paid, "amount": 500}
	refund := b.step("refund.create", with)
	id := refund.applied()
	refund.rolledBack(activities.Final)
	again := refund.again(with)
	r, err := again.apply()
	require.NoError(t, err)
	require.Equal(t, id, r.Outputs["id"])
	require.Equal(t, []string{"the effect of the step still stands from before the rollback; it was not repeated"},
		r.Notes)
	require.EqualValues(t, 500, b.em.Counters().Refunded)
	again.undone(activities.Nothing)
	again.fenced()
	require.EqualValues(t, 500, b.em.Counters().Refunded)

	open := b.intent()
	cancel := b.step("payment_intent.cancel", map[string]any{"payment_intent": open})
	cancel.applied()
	cancel.rolledBack(activities.Final)
	twice := cancel.again(map[string]any{"payment_intent": open})
	require.Equal(t, open, twice.applied())
	twice.undone(activities.Nothing) // this generation has done nothing

	// One that was never sent is sent now.
	whole := b.step("refund.create", map[string]any{"payment_intent": paid})
	whole.rolledBack(activities.Nothing)
	whole.again(map[string]any{"payment_intent": paid}).applied()
	require.EqualValues(t, 2000, b.em.Counters().Refunded)
}

func TestEveryCreateSaysHowItIsDoneAgain(t *testing.T) {
	for _, k := range kinds() {
		if !k.actsOnObject() && k.strategy != activities.Irreversible {
			require.NotEmpty(t, k.spec().Redo, k.name())
		}
	}
}
