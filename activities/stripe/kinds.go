package stripe

import (
	"net/url"
	"strings"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// What an undo may not restore.
const (
	lossVisible = "the canceled subscription and its invoices stay visible"
	lossIntent  = "a canceled intent cannot be used again"
	lossHold    = "the hold is not restored"
	lossFee     = "Stripe keeps its fee for a refunded payment"
	lossMails   = "emails to the customer, and the lines on the card's statement"
)

// kinds is the table of all actions.
func kinds() []*kind {
	intent := []activities.Key{{Prefix: "stripe:", Param: "payment_intent"}}
	created := []activities.Key{}
	id := output{"id", "id", "the id in Stripe"}
	status := output{"status", "status", "the status in Stripe"}
	return []*kind{
		newKind(kind{
			noun: "customer", verb: "create", summary: "Create a customer.",
			undo:   "deletes the customer",
			redo:   "creates another customer, with another id",
			losses: []string{"Stripe shows a deleted customer's past payments for ever"},
			risk:   activities.Low, strategy: activities.Compensation, keys: created,
			outputs:  []output{id, {"email", "email", "the email address"}},
			inverses: []inverse{deleteInverse},
			users:    &dependents{what: "subscriptions", list: "/v1/subscriptions", owner: "customer"},
		}, customerRequest),
		newKind(kind{
			noun: "product", verb: "create", summary: "Create a product.",
			undo: "deletes the product, or makes it inactive if it has prices, which Stripe never deletes",
			redo: "creates the product again, with the chosen id or another one; a chosen id is still taken if prices kept " +
				"the old product from being deleted",
			risk: activities.Low, strategy: activities.Compensation, keys: created,
			outputs:  []output{id},
			inverses: []inverse{deleteInverse, deactivateInverse}, exact: true,
			users: &dependents{what: "active prices", list: "/v1/prices", owner: "product", active: true},
		}, productRequest),
		newKind(kind{
			noun: "price", verb: "create", summary: "Create a price of a product.",
			undo:   "makes the price inactive",
			redo:   "creates another price, with another id; the old one stays inactive",
			losses: []string{"the inactive price stays: Stripe never deletes prices"},
			risk:   activities.Low, strategy: activities.Compensation, keys: created,
			outputs:  []output{id, {"product", "product", "the product's id"}},
			inverses: []inverse{deactivateInverse},
		}, priceRequest),
		newKind(kind{
			noun: "coupon", verb: "create", summary: "Create a coupon.",
			undo:   "deletes the coupon",
			redo:   "creates the coupon again, with the chosen id or another one",
			losses: []string{"discounts already given with the coupon stay"},
			risk:   activities.Low, strategy: activities.Compensation, keys: created,
			outputs:  []output{id},
			inverses: []inverse{deleteInverse},
		}, couponRequest),
		newKind(kind{
			noun: "subscription", verb: "create",
			summary: "Subscribe a customer to a price; a price that is not free is charged at once.",
			undo:    "cancels the subscription without a final invoice, and refunds what was paid for it",
			redo:    "creates another subscription, with another id, and charges for it again",
			losses:  []string{lossVisible, lossFee, lossMails},
			risk:    activities.Medium, strategy: activities.Compensation, keys: created,
			outputs: []output{id, status, {"customer", "customer", "the customer's id"}},
			spend:   undoSubscription, intent: []string{"customer", "price"},
		}, subscriptionRequest),
		newKind(kind{
			noun: "payment_intent", verb: "create",
			summary: "Create a payment intent, which moves no money before it is confirmed.",
			undo:    "cancels the intent",
			redo:    "creates another intent, with another id",
			losses:  []string{"the canceled intent stays visible"},
			risk:    activities.Low, strategy: activities.Compensation, keys: created,
			outputs:  []output{id, status},
			inverses: []inverse{cancelInverse, refundInverse}, intent: []string{"amount", "currency", "customer"},
		}, intentRequest),
		newKind(kind{
			noun: "payment_intent", verb: "confirm",
			summary: "Charge a payment intent, or hold its money if its capture method is manual.",
			undo:    "cancels the intent if its money is only held, and refunds the money if it was taken",
			losses:  []string{lossIntent, lossFee, lossMails},
			risk:    activities.High, strategy: activities.Compensation, keys: intent,
			outputs:  []output{id, status, {"charge", "latest_charge", "the charge's id"}},
			spend:    undoConfirm,
			isUndone: statusIn("requires_payment_method", "requires_confirmation"),
			isDone:   statusIn("succeeded", "requires_capture", "processing"),
		}, confirmRequest),
		newKind(kind{
			noun: "payment_intent", verb: "capture", summary: "Take the money that a confirmed payment intent holds.",
			undo:   "refunds the money",
			losses: []string{lossHold, lossFee, lossMails},
			risk:   activities.High, strategy: activities.Compensation, keys: intent,
			outputs: []output{id, status, {"charge", "latest_charge", "the charge's id"},
				{"amount_received", "amount_received", "the amount taken, in the smallest unit of the currency"}},
			spend:    undoCapture,
			isUndone: statusIn("requires_capture"),
			isDone:   statusIn("succeeded"),
		}, captureRequest),
		newKind(kind{
			noun: "payment_intent", verb: "cancel", summary: "Cancel a payment intent, and release the money that it holds.",
			undo: "cannot be undone: a canceled intent never comes back",
			risk: activities.High, strategy: activities.Irreversible, keys: intent,
			outputs:  []output{id, status},
			spend:    undoCancel,
			isUndone: func(o object) bool { return o.text("status") != "canceled" },
			isDone:   statusIn("canceled"),
		}, cancelRequest),
		newKind(kind{
			noun: "refund", verb: "create", summary: "Refund money to a customer.",
			undo: "cannot be undone, except that a refund that still waits for the customer is canceled",
			risk: activities.High, strategy: activities.Irreversible, keys: intent,
			outputs: []output{id, status, {"amount", "amount", "the amount refunded, in the smallest unit of the currency"}},
			spend:   undoRefund, intent: []string{"payment_intent", "amount"},
		}, refundRequest),
	}
}

type customerParams struct {
	Name        string `json:"name,omitempty" jsonschema:"the customer's name"`
	Email       string `json:"email,omitempty" jsonschema:"where Stripe sends receipts"`
	Phone       string `json:"phone,omitempty"`
	Description string `json:"description,omitempty"`
	// PaymentMethod becomes the default of the customer's invoices.
	PaymentMethod string            `json:"payment_method,omitempty" jsonschema:"id of a payment method; it is attached and pays the customer's invoices"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

func customerRequest(p customerParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	r := request{
		path: "/v1/customers", list: "/v1/customers",
		params: &stripe.CustomerParams{Name: optionalString(p.Name), Email: optionalString(p.Email),
			Phone: optionalString(p.Phone), Description: optionalString(p.Description), Metadata: m},
		leaves: map[string]any{
			"name": orNull(p.Name), "email": orNull(p.Email), "phone": orNull(p.Phone), "description": orNull(p.Description),
			"metadata": m,
		},
	}
	if p.PaymentMethod != "" {
		c := r.params.(*stripe.CustomerParams)
		c.PaymentMethod = stripe.String(p.PaymentMethod)
		c.InvoiceSettings = &stripe.CustomerInvoiceSettingsParams{DefaultPaymentMethod: stripe.String(p.PaymentMethod)}
	}
	return r, err
}

type productParams struct {
	ID          string            `json:"id,omitempty" jsonschema:"your own id; made from the step's token by default"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func productRequest(p productParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if p.ID == "" {
		p.ID = "unwind_" + token
	}
	if _, bad := pathOf("products", "id", p.ID); bad != nil {
		err = bad
	}
	return request{
		path: "/v1/products", list: "/v1/products", chosen: p.ID,
		params: &stripe.ProductParams{ID: stripe.String(p.ID), Name: stripe.String(p.Name),
			Description: optionalString(p.Description), Metadata: m},
		leaves: map[string]any{"name": p.Name, "description": orNull(p.Description), "active": true, "metadata": m},
	}, err
}

type priceParams struct {
	Product    string                        `json:"product" jsonschema:"the product's id"`
	Currency   string                        `json:"currency" jsonschema:"three letters: eur, usd"`
	UnitAmount int64                         `json:"unit_amount" jsonschema:"in the smallest unit of the currency; 0 is free"`
	Interval   stripe.PriceRecurringInterval `json:"interval,omitempty" jsonschema:"for a recurring price"`
	Every      int64                         `json:"interval_count,omitempty" jsonschema:"how many intervals there are between two invoices; 1 by default"`
	Nickname   string                        `json:"nickname,omitempty"`
	Metadata   map[string]string             `json:"metadata,omitempty"`
}

func priceRequest(p priceParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if err != nil {
		return request{}, err
	}
	parents, err := pathsOf("products", "product", p.Product)
	params := &stripe.PriceParams{Product: stripe.String(p.Product), Currency: stripe.String(strings.ToLower(p.Currency)),
		UnitAmount: stripe.Int64(p.UnitAmount), Nickname: optionalString(p.Nickname), Metadata: m}
	if p.Interval != "" {
		params.Recurring = &stripe.PriceRecurringParams{Interval: stripe.String(string(p.Interval)),
			IntervalCount: optionalInt(p.Every)}
	}
	return request{
		path: "/v1/prices", list: "/v1/prices", filter: url.Values{"product": {p.Product}}, parents: parents, params: params,
		leaves: map[string]any{"product": p.Product, "unit_amount": float64(p.UnitAmount), "nickname": orNull(p.Nickname),
			"active": true, "metadata": m},
	}, err
}

type couponParams struct {
	ID         string                `json:"id,omitempty" jsonschema:"the code; made from the step's token by default"`
	Name       string                `json:"name,omitempty"`
	PercentOff float64               `json:"percent_off,omitempty" jsonschema:"this or amount_off"`
	AmountOff  int64                 `json:"amount_off,omitempty" jsonschema:"this, with currency, or percent_off"`
	Currency   string                `json:"currency,omitempty"`
	Duration   stripe.CouponDuration `json:"duration,omitempty" jsonschema:"by default once"`
	Months     int64                 `json:"duration_in_months,omitempty" jsonschema:"with duration repeating: how many months it lasts"`
	Metadata   map[string]string     `json:"metadata,omitempty"`
}

func couponRequest(p couponParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if p.ID == "" {
		p.ID = "unwind_" + token
	}
	if _, bad := pathOf("coupons", "id", p.ID); bad != nil {
		err = bad
	}
	if p.Duration == "" {
		p.Duration = stripe.CouponDurationOnce
	}
	params := &stripe.CouponParams{ID: stripe.String(p.ID), Name: optionalString(p.Name),
		AmountOff: optionalInt(p.AmountOff), Currency: optionalString(strings.ToLower(p.Currency)),
		Duration: stripe.String(string(p.Duration)), DurationInMonths: optionalInt(p.Months), Metadata: m}
	if p.PercentOff != 0 {
		params.PercentOff = stripe.Float64(p.PercentOff)
	}
	return request{
		path: "/v1/coupons", list: "/v1/coupons", chosen: p.ID, params: params,
		leaves: map[string]any{"name": orNull(p.Name), "duration": string(p.Duration), "metadata": m},
	}, err
}

type subscriptionParams struct {
	Customer      string            `json:"customer" jsonschema:"the customer's id"`
	Price         string            `json:"price" jsonschema:"the id of a recurring price"`
	Quantity      int64             `json:"quantity,omitempty" jsonschema:"1 by default"`
	Coupon        string            `json:"coupon,omitempty" jsonschema:"the id of a coupon"`
	PaymentMethod string            `json:"payment_method,omitempty" jsonschema:"id of one of the customer's payment methods; by default the customer's default"`
	TrialDays     int64             `json:"trial_period_days,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

func subscriptionRequest(p subscriptionParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if err != nil {
		return request{}, err
	}
	parents, err := pathsOf("customers", "customer", p.Customer, "prices", "price", p.Price, "coupons", "coupon", p.Coupon)
	quantity := max(p.Quantity, 1)
	return request{
		path: "/v1/subscriptions", list: "/v1/subscriptions", filter: url.Values{"customer": {p.Customer}, "status": {"all"}},
		parents: parents,
		params: &stripe.SubscriptionParams{
			Customer: stripe.String(p.Customer),
			Items:    []*stripe.SubscriptionItemsParams{{Price: stripe.String(p.Price), Quantity: stripe.Int64(quantity)}},
			Coupon:   optionalString(p.Coupon), DefaultPaymentMethod: optionalString(p.PaymentMethod),
			TrialPeriodDays: optionalInt(p.TrialDays), Metadata: m,
			// A failed payment fails the step, instead of leaving a subscription that waits for payment.
			PaymentBehavior: stripe.String("error_if_incomplete"), OffSession: stripe.Bool(true),
		},
		leaves: map[string]any{"items.data.0.price.id": p.Price, "items.data.0.quantity": float64(quantity),
			"cancel_at_period_end": false, "metadata": m},
	}, err
}

type intentParams struct {
	Amount        int64                             `json:"amount" jsonschema:"in the smallest unit of the currency"`
	Currency      string                            `json:"currency" jsonschema:"three letters: eur, usd"`
	Customer      string                            `json:"customer,omitempty" jsonschema:"the customer's id"`
	PaymentMethod string                            `json:"payment_method,omitempty" jsonschema:"id of a payment method, for the confirmation"`
	CaptureMethod stripe.PaymentIntentCaptureMethod `json:"capture_method,omitempty" jsonschema:"manual: a confirmation only holds the money"`
	Description   string                            `json:"description,omitempty"`
	ReceiptEmail  string                            `json:"receipt_email,omitempty" jsonschema:"where Stripe sends a receipt"`
	Metadata      map[string]string                 `json:"metadata,omitempty"`
}

func intentRequest(p intentParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if err != nil {
		return request{}, err
	}
	parents, err := pathsOf("customers", "customer", p.Customer)
	return request{
		path: "/v1/payment_intents", list: "/v1/payment_intents", parents: parents,
		params: &stripe.PaymentIntentParams{
			Amount: stripe.Int64(p.Amount), Currency: stripe.String(strings.ToLower(p.Currency)),
			Customer: optionalString(p.Customer), PaymentMethod: optionalString(p.PaymentMethod),
			CaptureMethod: optionalString(p.CaptureMethod), Description: optionalString(p.Description),
			ReceiptEmail: optionalString(p.ReceiptEmail), Metadata: m,
			// A worker cannot follow a redirect.
			AutomaticPaymentMethods: &stripe.PaymentIntentAutomaticPaymentMethodsParams{Enabled: stripe.Bool(true),
				AllowRedirects: stripe.String("never")},
		},
		leaves: map[string]any{"amount": float64(p.Amount), "currency": strings.ToLower(p.Currency),
			"description": orNull(p.Description), "status": unpaid, "metadata": m},
	}, err
}

type confirmParams struct {
	Intent        string `json:"payment_intent" jsonschema:"the payment intent's id"`
	PaymentMethod string `json:"payment_method,omitempty" jsonschema:"id of a payment method; by default the intent's own"`
}

func confirmRequest(p confirmParams, _ string) (request, error) {
	// A confirmation that needs the customer fails at once: nobody is there.
	return verbRequest(p.Intent, "confirm", &stripe.PaymentIntentConfirmParams{
		PaymentMethod: optionalString(p.PaymentMethod), ErrorOnRequiresAction: stripe.Bool(true)})
}

type captureParams struct {
	Intent string `json:"payment_intent" jsonschema:"the payment intent's id"`
	Amount int64  `json:"amount,omitempty" jsonschema:"in the smallest unit of the currency; by default all that is held"`
}

func captureRequest(p captureParams, _ string) (request, error) {
	return verbRequest(p.Intent, "capture", &stripe.PaymentIntentCaptureParams{AmountToCapture: optionalInt(p.Amount)})
}

type cancelParams struct {
	Intent string                                 `json:"payment_intent" jsonschema:"the payment intent's id"`
	Reason stripe.PaymentIntentCancellationReason `json:"reason,omitempty"`
}

func cancelRequest(p cancelParams, _ string) (request, error) {
	return verbRequest(p.Intent, "cancel", &stripe.PaymentIntentCancelParams{CancellationReason: optionalString(p.Reason)})
}

func verbRequest(intent, verb string, params stripe.ParamsContainer) (request, error) {
	path, err := pathOf("payment_intents", "payment_intent", intent)
	return request{path: path + "/" + verb, params: params, parents: []string{path}}, err
}

type refundParams struct {
	Intent   string              `json:"payment_intent" jsonschema:"the id of the payment intent to refund"`
	Amount   int64               `json:"amount,omitempty" jsonschema:"in the smallest unit of the currency; by default all that is left"`
	Reason   stripe.RefundReason `json:"reason,omitempty"`
	Metadata map[string]string   `json:"metadata,omitempty"`
}

func refundRequest(p refundParams, token string) (request, error) {
	m, err := withToken(p.Metadata, token)
	if err != nil {
		return request{}, err
	}
	parents, err := pathsOf("payment_intents", "payment_intent", p.Intent)
	return request{
		path: "/v1/refunds", list: "/v1/refunds", filter: url.Values{"payment_intent": {p.Intent}}, parents: parents,
		params: &stripe.RefundParams{PaymentIntent: stripe.String(p.Intent), Amount: optionalInt(p.Amount),
			Reason: optionalString(p.Reason), Metadata: m},
		leaves: map[string]any{"metadata": m},
	}, err
}
