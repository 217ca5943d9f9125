package stripe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

func TestDriftIsNeverOverwritten(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.post("/v1/prices", "product", prod, "currency", "eur", "unit_amount", "0", "recurring[interval]", "month")
	sub := b.post("/v1/subscriptions", "customer", cus, "items[0][price]", price["id"].(string))
	b.post("/v1/customers/"+cus, "email", "else@example.com", "metadata[team]", "blue")

	u, err := customer.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "customer "+cus+`
- email: "ada@example.com"
+ email: "else@example.com"
- metadata: {}
+ metadata: {"team":"blue"}
- subscriptions: []
+ subscriptions: ["`+sub["id"].(string)+`"]
`, u.Drift.Diff)
	seen, err := customer.action.Observe(t.Context(), customer.entry)
	require.NoError(t, err)
	require.Equal(t,
		activities.Observation{State: activities.Elsewise, Detail: "customer " + cus + " was changed", Drift: u.Drift}, seen)

	b.post("/v1/customers/"+cus, "email", "third@example.com")
	again, err := customer.undoForced(u.Drift.Digest)
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, again.Outcome, "a force covers exactly the drift that was shown")
	require.NotNil(t, b.em.Object(cus))

	forced, err := customer.undoForced(again.Drift.Digest)
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, forced.Outcome)
	require.Contains(t, forced.Observed, "someone else had changed")
	require.Nil(t, b.em.Object(cus))
	customer.undone(activities.Compensated)
}

func TestAnotherSubscriberKeepsTheSubscription(t *testing.T) {
	b := newBench(t)
	cus := b.paying().applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	price := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	s := b.step("subscription.create", map[string]any{"customer": cus, "price": price})
	sub := s.applied()
	b.post("/v1/subscriptions/"+sub, "cancel_at_period_end", "true")
	u, err := s.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "active", b.em.Object(sub)["status"])
	b.money(1, 0)
	u, err = s.undoForced(u.Drift.Digest)
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	b.money(1, 1)
}

func TestAnIntentThatSomebodyPaidIsLeftAlone(t *testing.T) {
	b := newBench(t)
	s := b.step("payment_intent.create",
		map[string]any{"amount": 2000, "currency": "eur", "payment_method": "pm_card_visa"})
	pi := s.applied()
	b.post("/v1/payment_intents/" + pi + "/confirm")
	u, err := s.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	b.money(1, 0)
	u, err = s.undoForced(u.Drift.Digest)
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	b.money(1, 1)
}

func TestOnceKeysAreForgotten(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	intent := b.step("payment_intent.create",
		map[string]any{"amount": 2000, "currency": "eur", "payment_method": "pm_card_visa"})
	pi := intent.applied()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	confirm.applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"})
	price := b.step("price.create",
		map[string]any{"product": prod.applied(), "currency": "eur", "unit_amount": 1200, "interval": "month"})
	subscription := b.step("subscription.create", map[string]any{"customer": cus, "price": price.applied()})
	subscription.applied()
	b.money(2, 0)
	live := b.em.Live()

	b.clock.Advance(49 * time.Hour)
	for _, s := range []*step{customer, intent, confirm, prod, price, subscription} {
		_, err := s.elsewhere().apply()
		require.NoError(t, err, s.entry.Action)
	}
	require.Equal(t, live, b.em.Live(), "a retry days later makes nothing new")
	b.money(2, 0)

	subscription.undone(activities.Compensated)
	price.undone(activities.Compensated)
	prod.undone(activities.Compensated)
	confirm.undone(activities.Compensated)
	intent.undone(activities.Compensated)
	u, err := customer.undo()
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	b.nothingLives()
	b.money(2, 2)
}

func TestReleaseEndsTheWindow(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": b.intent()})
	confirm.applied()
	planned := b.step("customer.create", map[string]any{"name": "Never"})
	for _, s := range []*step{customer, confirm, planned} {
		require.NoError(t, s.action.Release(t.Context(), s.entry))
		require.NoError(t, s.elsewhere().action.Release(t.Context(), s.entry))
	}
	require.NotNil(t, b.em.Object(cus))
	require.Len(t, b.em.Live(), 2, "releasing makes nothing and takes nothing away")
	for _, s := range []*step{customer, confirm} {
		s.fenced()
		_, err := s.undo()
		require.Equal(t, activities.Fenced, activities.TypeOf(err))
	}
	b.money(1, 0)
}

func TestPlanTouchesNothingAndIsWhatRuns(t *testing.T) {
	b := newBench(t)
	customer := b.paying()
	cus := customer.applied()
	prod := b.step("product.create", map[string]any{"name": "Plan"}).applied()
	free := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 0, "interval": "month"}).applied()
	paid := b.step("price.create",
		map[string]any{"product": prod, "currency": "eur", "unit_amount": 1200, "interval": "month"}).applied()
	before := b.em.State()

	plan := func(s *step) activities.Change {
		change, err := s.action.Plan(t.Context(), s.entry, activities.Step{With: s.with})
		require.NoError(t, err)
		again, err := s.elsewhere().action.Plan(t.Context(), s.entry, activities.Step{With: s.with})
		require.NoError(t, err)
		require.Equal(t, change, again)
		return change
	}
	require.Equal(t, activities.Low,
		plan(b.step("subscription.create", map[string]any{"customer": cus, "price": free})).Risk)
	s := b.step("subscription.create", map[string]any{"customer": cus, "price": paid})
	change := plan(s)
	require.Equal(t, activities.High, change.Risk)
	require.Contains(t, change.Diff, "POST /v1/subscriptions\n+ customer = "+cus+"\n+ items[0][price] = "+paid)
	require.Contains(t, change.Diff, `price `+paid+`:`)
	pi := b.intent()
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": pi})
	require.Equal(t, []string{"stripe:" + pi}, plan(confirm).Keys)
	b.post("/v1/payment_intents/" + pi + "/cancel")
	require.Equal(t, before, b.em.State())

	b.post("/v1/customers/"+cus, "email", "else@example.com")
	_, err := s.applyWant(change.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err), "%v", err)
	b.money(0, 0)
	change = plan(s)
	_, err = s.applyWant(change.Digest)
	require.NoError(t, err)
	b.post("/v1/customers/"+cus, "email", "third@example.com")
	_, err = s.applyWant(change.Digest)
	require.NoError(t, err, "what an earlier attempt has begun is never judged again")
	b.money(1, 0)
}

func TestAnIrreversibleStepSaysSo(t *testing.T) {
	for _, k := range kinds() {
		s := k.spec()
		if s.Strategy == activities.Irreversible {
			require.Equal(t, activities.High, s.Risk, s.Name)
			require.Contains(t, s.Undo, "cannot be undone", s.Name)
		}
		require.NotNil(t, s.Keys, s.Name)
		require.NotEmpty(t, s.UndoParams, s.Name)
		require.Subset(t, s.UndoParams, s.Intent, s.Name)
		require.NotContains(t, s.Intent, "description", s.Name)
		require.LessOrEqual(t, len(k.mark(releasedMark)), 40, "a metadata name of Stripe's")
	}
}

func TestAnotherAccountIsTheWrongPlace(t *testing.T) {
	b := newBench(t)
	s := b.paying()
	s.applied()
	b.service = b.worker(Config{Key: func() (string, error) { return "sk_test_other_account", nil }})
	s.action = b.actionOf(b.service, s.action.kind)
	_, err := s.undo()
	require.Equal(t, activities.WrongPlace, activities.TypeOf(err))
	s.fails(activities.WrongPlace)
	require.Len(t, b.em.Live(), 1)
}

func TestALiveKeyIsRefusedUnlessAllowed(t *testing.T) {
	_, err := New(Config{})
	require.Error(t, err)
	w, err := New(Config{Key: func() (string, error) { return "rk_live_0123456789", nil }})
	require.NoError(t, err)
	_, err = w.Journal(t.Context())
	require.Equal(t, activities.Refused, activities.TypeOf(err))
	require.NotContains(t, err.Error(), "0123456789")

	em := emulator.New(emulator.Options{Accounts: map[string]string{"sk_live_0123456789": "acct_live"}})
	server, err := em.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	w, err = New(Config{Key: func() (string, error) { return "sk_live_0123456789", nil }, AllowLive: true,
		BaseURL: server.URL})
	require.NoError(t, err)
	id, err := w.Journal(t.Context())
	require.NoError(t, err)
	require.Equal(t, "acct_live:live", id)
}

func TestNoSecretIsHandedOn(t *testing.T) {
	b := newBench(t)
	s := b.step("payment_intent.create",
		map[string]any{"amount": 2000, "currency": "eur", "payment_method": emulator.CardDeclined})
	r, err := s.apply()
	require.NoError(t, err)
	confirm := b.step("payment_intent.confirm", map[string]any{"payment_intent": r.Outputs["id"]})
	change, err := confirm.action.Plan(t.Context(), confirm.entry, activities.Step{With: confirm.with})
	require.NoError(t, err)
	_, failed := confirm.apply()
	require.Error(t, failed)
	undone, err := confirm.undo()
	require.NoError(t, err)
	all, err := json.Marshal([]any{r, change, failed.Error(), undone})
	require.NoError(t, err)
	require.NotContains(t, string(all), "_secret_")
}

func TestAChecksSceneIsTheObject(t *testing.T) {
	b := newBench(t)
	s := b.step("product.create", map[string]any{"name": "Plan"})
	check := func(c activities.Check) error {
		_, err := s.action.Apply(t.Context(), s.entry, activities.Step{With: s.with, Checks: []activities.Check{c}}, "")
		return err
	}
	require.NoError(t,
		check(activities.Check{JSON: &activities.JSONCheck{At: "/name", Equals: json.RawMessage(`"Plan"`)}}))
	require.Equal(t, activities.CheckFailed,
		activities.TypeOf(
			check(activities.Check{JSON: &activities.JSONCheck{At: "/active", Equals: json.RawMessage("false")}})))
	s.undone(activities.Restored)
}
