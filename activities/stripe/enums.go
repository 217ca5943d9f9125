package stripe

import (
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stripe/stripe-go/v76"
)

// enums are the values that Stripe takes for parameters of these types: not all that objects show.
// A parameter of another type may have any value, which Stripe judges: new currencies, say, come
// without a new version of its API.
var enums = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[stripe.CouponDuration](): enumOf(stripe.CouponDurationOnce, stripe.CouponDurationRepeating,
		stripe.CouponDurationForever),
	reflect.TypeFor[stripe.PriceRecurringInterval](): enumOf(
		stripe.PriceRecurringIntervalDay, stripe.PriceRecurringIntervalWeek, stripe.PriceRecurringIntervalMonth,
		stripe.PriceRecurringIntervalYear),
	reflect.TypeFor[stripe.PaymentIntentCaptureMethod](): enumOf(
		stripe.PaymentIntentCaptureMethodAutomatic, stripe.PaymentIntentCaptureMethodAutomaticAsync,
		stripe.PaymentIntentCaptureMethodManual),
	reflect.TypeFor[stripe.PaymentIntentCancellationReason](): enumOf(
		stripe.PaymentIntentCancellationReasonDuplicate, stripe.PaymentIntentCancellationReasonFraudulent,
		stripe.PaymentIntentCancellationReasonRequestedByCustomer, stripe.PaymentIntentCancellationReasonAbandoned),
	reflect.TypeFor[stripe.RefundReason](): enumOf(stripe.RefundReasonDuplicate, stripe.RefundReasonFraudulent,
		stripe.RefundReasonRequestedByCustomer),
}

func enumOf[V ~string](values ...V) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}
