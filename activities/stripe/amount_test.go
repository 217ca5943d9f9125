package stripe

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASummaryNamesTheAmount(t *testing.T) {
	intent := object{"object": "payment_intent", "id": "pi_1", "currency": "eur", "amount": 1200.0,
		"amount_capturable": 700.0}
	charge := object{"object": "charge", "id": "ch_1", "amount_captured": 1200.0, "amount_refunded": 200.0}
	price := object{"object": "price", "id": "price_1", "currency": "jpy", "unit_amount": 500.0}
	for name, c := range map[string]struct {
		noun, verb string
		sent       url.Values
		parents    []object
		want       string
	}{
		"create":      {"payment_intent", "create", url.Values{"amount": {"5"}, "currency": {"usd"}}, nil, "S: 0.05 USD"},
		"confirm":     {"payment_intent", "confirm", nil, []object{intent}, "S (pi_1): 12.00 EUR"},
		"capture all": {"payment_intent", "capture", nil, []object{intent}, "S (pi_1): 7.00 EUR"},
		"capture some": {"payment_intent", "capture", url.Values{"amount_to_capture": {"650"}}, []object{intent},
			"S (pi_1): 6.50 EUR"},
		"cancel":      {"payment_intent", "cancel", nil, []object{intent}, "S (pi_1): 7.00 EUR"},
		"refund rest": {"refund", "create", nil, []object{intent, charge}, "S (pi_1): 10.00 EUR"},
		"refund some": {"refund", "create", url.Values{"amount": {"1"}}, []object{intent, charge}, "S (pi_1): 0.01 EUR"},
		"subscribe": {"subscription", "create", url.Values{"items[0][quantity]": {"3"}},
			[]object{{"object": "customer", "id": "cus_1"}, price}, "S (cus_1): 1500 JPY"},
		"tiers": {"subscription", "create", url.Values{"items[0][quantity]": {"3"}},
			[]object{{"object": "price", "id": "price_2", "currency": "eur"}}, "S (price_2)"},
		"no money": {"customer", "create", nil, nil, "S"},
	} {
		a := &action{kind: &kind{noun: c.noun, verb: c.verb, summary: "S."}}
		require.Equal(t, c.want, a.summarize(c.sent, c.parents), name)
	}
	require.Equal(t, "1.234 KWD", formatMoney(1234, "kwd"))
}
