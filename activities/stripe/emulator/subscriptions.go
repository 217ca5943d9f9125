package emulator

import (
	"net/http"
)

func (r request) createSubscription() (*object, *apiError) {
	customer, price := r.findObject("customer", r.value("customer")), r.findObject("price", r.value("items[0][price]"))
	if customer == nil {
		return nil, rejected(http.StatusBadRequest, "resource_missing", "No such customer: '"+r.value("customer")+"'")
	}
	if price == nil || price.text("type") != "recurring" || price.fields["active"] != true {
		return nil, rejected(http.StatusBadRequest, "resource_missing",
			"No such active recurring price: '"+r.value("items[0][price]")+"'")
	}
	quantity, problem := r.number("items[0][quantity]", 1)
	if problem != nil {
		return nil, problem
	}
	trial, problem := r.number("trial_period_days", 0)
	if problem != nil {
		return nil, problem
	}
	due, problem := r.applyCoupon(price.number("unit_amount") * quantity)
	if problem != nil {
		return nil, problem
	}
	if trial > 0 {
		due = 0
	}
	sent := r.value("collection_method") == "send_invoice"
	method := r.optional("default_payment_method")
	if method == nil {
		method = customer.fields["invoice_settings"].(map[string]any)["default_payment_method"]
	}
	if due > 0 && !sent && method == nil {
		return nil, rejected(http.StatusBadRequest, "resource_missing",
			"This customer has no attached payment source or default payment method.")
	}
	if due > 0 && !sent && method == CardDeclined {
		return nil, declined("card_declined", nil)
	}
	status := "active"
	if trial > 0 {
		status = "trialing"
	}
	s := r.addObject("subscription", r.prefix, "", map[string]any{
		"customer": customer.id, "status": status, "cancel_at_period_end": false, "currency": price.fields["currency"],
		"collection_method": "charge_automatically", "description": r.optional("description"),
		"items": map[string]any{"object": "list",
			"data": []any{map[string]any{"id": "si_" + price.id, "object": "subscription_item",
				"quantity": quantity, "price": map[string]any{"id": price.id, "object": "price"}}}},
	})
	if sent {
		s.fields["collection_method"] = "send_invoice"
	}
	s.fields["latest_invoice"] = r.createInvoice(s, due, method, sent).id
	return s, nil
}

// applyCoupon subtracts the coupon's discount from an amount.
func (r request) applyCoupon(amount int64) (int64, *apiError) {
	id := r.value("coupon")
	if id == "" {
		return amount, nil
	}
	c := r.findObject("coupon", id)
	if c == nil {
		return 0, rejected(http.StatusBadRequest, "resource_missing", "No such coupon: '"+id+"'")
	}
	c.fields["times_redeemed"] = c.number("times_redeemed") + 1
	if percent, ok := c.fields["percent_off"].(float64); ok {
		return amount - int64(float64(amount)*percent/100), nil
	}
	return max(0, amount-c.number("amount_off")), nil
}

// createInvoice creates a subscription's first invoice, and pays or sends it.
func (r request) createInvoice(s *object, due int64, method any, sent bool) *object {
	in := r.addObject("invoice", "in_", "", map[string]any{
		"subscription": s.id, "customer": s.fields["customer"], "currency": s.fields["currency"], "amount_due": due,
		"amount_paid": int64(0), "status": "paid", "payment_intent": nil, "charge": nil,
	})
	switch {
	case due == 0:
	case sent:
		in.fields["status"] = "open"
		r.e.counters.Mails++
	default:
		intent := r.newIntent(due, s.text("currency"), s.fields["customer"], method)
		r.payIntent(intent) // declined cards were refused before
		in.fields["amount_paid"], in.fields["payment_intent"], in.fields["charge"] = due, intent.id,
			intent.fields["latest_charge"]
	}
	return in
}

func (r request) cancelSubscription(s *object) (map[string]any, *apiError) {
	if s.text("status") == "canceled" {
		return nil, missing("subscription", s.id)
	}
	s.fields["status"] = "canceled"
	return s.fields, nil
}

func (r request) voidInvoice(in *object) *apiError {
	if in.text("status") != "open" {
		return rejected(http.StatusBadRequest, "", "Only an open invoice can be voided.")
	}
	in.fields["status"] = "void"
	return nil
}
