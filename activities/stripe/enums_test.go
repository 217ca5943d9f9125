package stripe

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
)

// TestParametersNameTheirValues: where the library knows the values of a field of an object, the
// parameter of that name has an enum.
func TestParametersNameTheirValues(t *testing.T) {
	objects := map[string]reflect.Type{
		"customer": reflect.TypeFor[stripe.Customer](), "product": reflect.TypeFor[stripe.Product](),
		"price":  reflect.TypeFor[stripe.Price](),
		"coupon": reflect.TypeFor[stripe.Coupon](), "subscription": reflect.TypeFor[stripe.Subscription](),
		"payment_intent": reflect.TypeFor[stripe.PaymentIntent](), "refund": reflect.TypeFor[stripe.Refund](),
	}
	within := map[string]reflect.Type{ // parameters whose field is elsewhere, or has another name
		"stripe.price.create.interval":        reflect.TypeFor[stripe.PriceRecurringInterval](),
		"stripe.payment_intent.cancel.reason": reflect.TypeFor[stripe.PaymentIntentCancellationReason](),
	}
	open := map[reflect.Type]bool{reflect.TypeFor[stripe.Currency](): true}
	named := map[reflect.Type]bool{}
	for _, k := range kinds() {
		require.NotNil(t, objects[k.noun], k.noun)
		var s jsonschema.Schema
		require.NoError(t, json.Unmarshal(k.params, &s))
		fields := map[string]reflect.Type{}
		for f := range objects[k.noun].Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = f.Type
		}
		for name, p := range s.Properties {
			of := fields[name]
			if other := within[k.name()+"."+name]; other != nil {
				of = other
			}
			if of == nil || of.Kind() != reflect.String || of.PkgPath() == "" || open[of] {
				require.Empty(t, p.Enum, "%s.%s", k.name(), name)
				continue
			}
			require.NotNil(t, enums[of], "%s.%s: %s", k.name(), name, of)
			require.Equal(t, enums[of].Enum, p.Enum, "%s.%s", k.name(), name)
			named[of] = true
		}
	}
	require.Len(t, named, len(enums))
}
