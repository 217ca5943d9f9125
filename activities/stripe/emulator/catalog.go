package emulator

import (
	"net/http"
	"strconv"
)

// createObject creates an object of the request's kind.
func (r request) createObject() (map[string]any, *apiError) {
	makers := map[string]func() (*object, *apiError){
		"customer": r.createCustomer, "product": r.createProduct, "price": r.createPrice, "coupon": r.createCoupon,
		"subscription": r.createSubscription, "payment_intent": r.createIntent, "refund": r.createRefund,
	}
	maker := makers[r.noun]
	if maker == nil {
		return nil, rejected(http.StatusNotFound, "", "Unrecognized request URL")
	}
	o, problem := maker()
	if problem != nil {
		return nil, problem
	}
	r.setMetadata(o)
	return o.fields, nil
}

func (r request) createCustomer() (*object, *apiError) {
	method := r.value("invoice_settings[default_payment_method]")
	if method != "" && r.value("payment_method") != method {
		return nil, rejected(http.StatusBadRequest, "resource_missing", "The payment method is not attached to the customer")
	}
	return r.addObject("customer", r.prefix, "", map[string]any{
		"name": r.optional("name"), "email": r.optional("email"), "phone": r.optional("phone"),
		"description":      r.optional("description"),
		"balance":          int64(0),
		"invoice_settings": map[string]any{"default_payment_method": r.optional("invoice_settings[default_payment_method]")},
	}), nil
}

func (r request) createProduct() (*object, *apiError) {
	if r.value("name") == "" {
		return nil, invalid("name", "Missing required param: name.")
	}
	if problem := r.refuseTakenID("product"); problem != nil {
		return nil, problem
	}
	return r.addObject("product", r.prefix, r.value("id"), map[string]any{
		"name": r.value("name"), "description": r.optional("description"), "active": true,
	}), nil
}

func (r request) refuseTakenID(noun string) *apiError {
	if id := r.value("id"); r.findObject(noun, id) != nil {
		return rejected(http.StatusBadRequest, "resource_already_exists", noun+" already exists.")
	}
	return nil
}

func (r request) createPrice() (*object, *apiError) {
	amount, problem := r.number("unit_amount", -1)
	if problem != nil {
		return nil, problem
	}
	if amount < 0 || r.value("currency") == "" {
		return nil, invalid("unit_amount", "Missing required param: unit_amount or currency.")
	}
	if r.findObject("product", r.value("product")) == nil {
		return nil, rejected(http.StatusBadRequest, "resource_missing", "No such product: '"+r.value("product")+"'")
	}
	kind, recurring := "one_time", any(nil)
	if every := r.value("recurring[interval]"); every != "" {
		count, problem := r.number("recurring[interval_count]", 1)
		if problem != nil {
			return nil, problem
		}
		kind, recurring = "recurring", map[string]any{"interval": every, "interval_count": count}
	}
	return r.addObject("price", r.prefix, "", map[string]any{
		"product": r.value("product"), "currency": r.value("currency"), "unit_amount": amount, "type": kind,
		"recurring": recurring, "nickname": r.optional("nickname"), "active": true,
	}), nil
}

func (r request) createCoupon() (*object, *apiError) {
	off, problem := r.number("amount_off", 0)
	if problem != nil {
		return nil, problem
	}
	percent, err := strconv.ParseFloat(r.value("percent_off"), 64)
	if (err != nil || percent <= 0 || percent > 100) == (off <= 0) {
		return nil, invalid("percent_off", "Give one of percent_off and amount_off.")
	}
	if problem := r.refuseTakenID("coupon"); problem != nil {
		return nil, problem
	}
	fields := map[string]any{
		"name": r.optional("name"), "duration": r.value("duration"), "currency": r.optional("currency"), "valid": true,
		"times_redeemed": int64(0), "percent_off": nil, "amount_off": nil,
	}
	if off > 0 {
		fields["amount_off"] = off
	} else {
		fields["percent_off"] = percent
	}
	return r.addObject("coupon", r.prefix, r.value("id"), fields), nil
}

// updateObject changes the metadata and the plain fields of an object.
func (r request) updateObject(o *object) map[string]any {
	for _, name := range []string{"name", "email", "phone", "description", "nickname", "payment_method"} {
		if _, has := o.fields[name]; has && len(r.form[name]) > 0 {
			o.fields[name] = r.optional(name)
		}
	}
	if v := r.value("active"); v != "" {
		o.fields["active"] = v == "true"
	}
	if v := r.value("cancel_at_period_end"); v != "" {
		o.fields["cancel_at_period_end"] = v == "true"
	}
	r.setMetadata(o)
	return o.fields
}

// deleteObject deletes an object, or cancels a subscription.
func (r request) deleteObject(o *object) (map[string]any, *apiError) {
	switch o.kind {
	case "subscription":
		return r.cancelSubscription(o)
	case "customer":
		r.account.eachObject("subscription", func(s *object) {
			if s.text("customer") == o.id {
				s.fields["status"] = "canceled"
			}
		})
	case "product":
		used := false
		r.account.eachObject("price", func(p *object) { used = used || p.text("product") == o.id })
		if used {
			return nil, rejected(http.StatusBadRequest, "",
				"This product cannot be deleted because it has one or more user-created prices.")
		}
	case "coupon":
	default:
		return nil, rejected(http.StatusMethodNotAllowed, "", "A "+o.kind+" cannot be deleted.")
	}
	o.deleted = true
	return map[string]any{"id": o.id, "object": o.kind, "deleted": true}, nil
}
