package stripe

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// amount is the money that a request is about, such as "12.50 EUR"; empty if it is about none, or
// if Stripe works it out.
func (a *action) amount(sent url.Values, parents []object) string {
	find := func(kind string) object {
		if i := slices.IndexFunc(parents, func(o object) bool { return o.text("object") == kind }); i >= 0 {
			return parents[i]
		}
		return nil
	}
	intent := find("payment_intent")
	currency := intent.text("currency")
	given := func(field, currency string) string {
		n, err := strconv.ParseInt(sent.Get(field), 10, 64)
		if err != nil {
			return ""
		}
		return formatMoney(n, currency)
	}
	switch a.kind.noun + "." + a.kind.verb {
	case "payment_intent.create":
		return given("amount", sent.Get("currency"))
	case "payment_intent.confirm":
		return formatMoney(intent.number("amount"), currency)
	case "payment_intent.capture":
		if sent.Has("amount_to_capture") {
			return given("amount_to_capture", currency)
		}
		return formatMoney(intent.number("amount_capturable"), currency)
	case "payment_intent.cancel":
		return formatMoney(intent.number("amount_capturable"), currency)
	case "refund.create":
		if sent.Has("amount") {
			return given("amount", currency)
		}
		charge := find("charge")
		return formatMoney(charge.number("amount_captured")-charge.number("amount_refunded"), currency)
	case "subscription.create":
		price := find("price")
		quantity, err := strconv.ParseInt(sent.Get("items[0][quantity]"), 10, 64)
		if err != nil || price.valueAt("unit_amount") == nil { // it has tiers
			return ""
		}
		return formatMoney(quantity*price.number("unit_amount"), price.text("currency"))
	}
	return ""
}

// Currencies whose smallest unit is not a hundredth, as Stripe counts them.
var (
	wholeCurrencies      = strings.Fields("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf")
	thousandthCurrencies = strings.Fields("bhd jod kwd omr tnd")
)

// formatMoney writes an amount in the smallest unit of its currency as people write it.
func formatMoney(smallest int64, currency string) string {
	digits := 2
	switch {
	case currency == "":
		return ""
	case slices.Contains(wholeCurrencies, strings.ToLower(currency)):
		digits = 0
	case slices.Contains(thousandthCurrencies, strings.ToLower(currency)):
		digits = 3
	}
	text := strconv.FormatInt(smallest, 10)
	if digits > 0 {
		text = strings.Repeat("0", max(0, digits+1-len(text))) + text
		text = text[:len(text)-digits] + "." + text[len(text)-digits:]
	}
	return text + " " + strings.ToUpper(currency)
}
