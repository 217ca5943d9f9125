package emulator

import (
	"fmt"
	"net/http"
	"slices"
)

// The test cards that behave as named; every other payment method pays.
const (
	CardDeclined    = "pm_card_chargeDeclined"
	CardNeedsPerson = "pm_card_authenticationRequired"
)

func declined(code string, intent *object) *apiError {
	return &apiError{status: http.StatusPaymentRequired, kind: "card_error", code: code,
		message: "Your card was declined.", intent: intent}
}

func (r request) createIntent() (*object, *apiError) {
	amount, problem := r.number("amount", 0)
	if problem != nil {
		return nil, problem
	}
	if amount <= 0 || r.value("currency") == "" {
		return nil, invalid("amount", "Missing required param: amount or currency.")
	}
	if c := r.value("customer"); c != "" && r.findObject("customer", c) == nil {
		return nil, rejected(http.StatusBadRequest, "resource_missing", "No such customer: '"+c+"'")
	}
	o := r.newIntent(amount, r.value("currency"), r.optional("customer"), r.optional("payment_method"))
	o.fields["description"], o.fields["receipt_email"] = r.optional("description"), r.optional("receipt_email")
	if r.value("capture_method") == "manual" {
		o.fields["capture_method"] = "manual"
	}
	return o, nil
}

func (r request) newIntent(amount int64, currency string, customer, method any) *object {
	o := r.addObject("payment_intent", "pi_", "", map[string]any{
		"amount": amount, "currency": currency, "customer": customer, "payment_method": method, "description": nil,
		"receipt_email": nil, "capture_method": "automatic", "amount_capturable": int64(0), "amount_received": int64(0),
		"latest_charge": nil, "status": "requires_payment_method",
	})
	o.fields["client_secret"] = o.id + "_secret_emulated"
	if method != nil {
		o.fields["status"] = "requires_confirmation"
	}
	return o
}

// verb does confirm, capture, cancel and void.
func (r request) verb(o *object, name string) (map[string]any, *apiError) {
	verbs := map[string]func(*object) *apiError{
		"payment_intent/confirm": r.confirmIntent, "payment_intent/capture": r.captureIntent,
		"payment_intent/cancel": r.cancelIntent,
		"refund/cancel":         r.cancelRefund, "invoice/void": r.voidInvoice,
	}
	do := verbs[o.kind+"/"+name]
	if do == nil {
		return nil, rejected(http.StatusNotFound, "", "Unrecognized request URL")
	}
	if problem := do(o); problem != nil {
		return nil, problem
	}
	return o.fields, nil
}

func unexpected(o *object, verb string) *apiError {
	return rejected(http.StatusBadRequest, "payment_intent_unexpected_state",
		fmt.Sprintf("You cannot %s this PaymentIntent because it has a status of %s.", verb, o.text("status")))
}

func (r request) confirmIntent(o *object) *apiError {
	if !slices.Contains([]string{"requires_payment_method", "requires_confirmation", "requires_action"},
		o.text("status")) {
		return unexpected(o, "confirm")
	}
	if m := r.value("payment_method"); m != "" {
		o.fields["payment_method"] = m
	}
	if o.text("payment_method") == "" {
		return unexpected(o, "confirm")
	}
	if o.text("payment_method") == CardNeedsPerson && r.value("error_on_requires_action") != "true" {
		o.fields["status"] = "requires_action"
		return nil
	}
	return r.payIntent(o)
}

// payIntent charges or authorizes an intent's payment method.
func (r request) payIntent(o *object) *apiError {
	charge := r.addObject("charge", "ch_", "", map[string]any{
		"amount": o.fields["amount"], "currency": o.fields["currency"], "payment_intent": o.id,
		"customer":        o.fields["customer"],
		"amount_captured": int64(0), "amount_refunded": int64(0), "captured": false, "refunded": false, "status": "succeeded",
	})
	o.fields["latest_charge"] = charge.id
	if code := map[string]string{CardDeclined: "card_declined",
		CardNeedsPerson: "authentication_required"}[o.text("payment_method")]; code != "" {
		charge.fields["status"], o.fields["status"], o.fields["payment_method"] = "failed", "requires_payment_method", nil
		return declined(code, o)
	}
	if o.text("capture_method") == "manual" {
		o.fields["status"], o.fields["amount_capturable"] = "requires_capture", o.fields["amount"]
		r.e.counters.Holds++
		return nil
	}
	r.receive(o, charge, o.number("amount"))
	return nil
}

// receive moves an intent's money.
func (r request) receive(o, charge *object, amount int64) {
	// What is not captured is released, which the API shows as if it were refunded.
	charge.fields["captured"], charge.fields["amount_captured"] = true, amount
	charge.fields["amount_refunded"] = o.number("amount") - amount
	o.fields["status"], o.fields["amount_received"], o.fields["amount_capturable"] = "succeeded", amount, int64(0)
	r.e.counters.Charges++
	r.e.counters.Charged += amount
	if o.text("receipt_email") != "" {
		r.e.counters.Mails++
	}
}

func (r request) captureIntent(o *object) *apiError {
	if o.text("status") != "requires_capture" {
		return unexpected(o, "capture")
	}
	amount, problem := r.number("amount_to_capture", o.number("amount"))
	if problem != nil {
		return problem
	}
	if amount <= 0 || amount > o.number("amount_capturable") {
		return rejected(http.StatusBadRequest, "amount_too_large", "The amount to capture is more than the amount held.")
	}
	r.receive(o, r.findObject("charge", o.text("latest_charge")), amount)
	r.setMetadata(o)
	return nil
}

func (r request) cancelIntent(o *object) *apiError {
	if s := o.text("status"); s == "succeeded" || s == "canceled" || s == "processing" {
		return unexpected(o, "cancel")
	}
	o.fields["status"], o.fields["amount_capturable"] = "canceled", int64(0)
	if c := r.findObject("charge", o.text("latest_charge")); c != nil && c.text("status") == "succeeded" {
		c.fields["refunded"] = true // so Stripe shows a hold that was released
	}
	return nil
}

func (r request) createRefund() (*object, *apiError) {
	intent := r.findObject("payment_intent", r.value("payment_intent"))
	if intent == nil {
		return nil, missing("payment_intent", r.value("payment_intent"))
	}
	charge := r.findObject("charge", intent.text("latest_charge"))
	if charge == nil || intent.text("status") != "succeeded" {
		return nil, rejected(http.StatusBadRequest, "charge_not_refundable",
			"This PaymentIntent does not have a successful charge to refund.")
	}
	left := charge.number("amount") - charge.number("amount_refunded")
	amount, problem := r.number("amount", left)
	switch {
	case problem != nil:
		return nil, problem
	case left == 0:
		return nil, rejected(http.StatusBadRequest, "charge_already_refunded",
			"Charge "+charge.id+" has already been refunded.")
	case amount <= 0 || amount > left:
		return nil, rejected(http.StatusBadRequest, "amount_too_large",
			"Refund amount is greater than unrefunded amount on charge.")
	}
	charge.fields["amount_refunded"] = charge.number("amount_refunded") + amount
	charge.fields["refunded"] = amount == left
	r.e.counters.Refunds++
	r.e.counters.Refunded += amount
	if intent.text("receipt_email") != "" {
		r.e.counters.Mails++
	}
	return r.addObject("refund", r.prefix, "", map[string]any{
		"amount": amount, "currency": charge.fields["currency"], "charge": charge.id, "payment_intent": intent.id,
		"reason": r.optional("reason"), "status": "succeeded",
	}), nil
}

func (r request) cancelRefund(o *object) *apiError {
	if o.text("status") != "requires_action" {
		return rejected(http.StatusBadRequest, "", "Only a refund that requires action can be canceled.")
	}
	o.fields["status"] = "canceled"
	return nil
}
