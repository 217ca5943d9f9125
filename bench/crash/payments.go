package crash

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// purchase is one step at Stripe. Live is the kind of object that it leaves, empty for one that
// only acts on another.
type purchase struct {
	ID, Uses string
	With     map[string]any
	Live     string
	// Ended: a later step of the part ends that object.
	Ended bool
}

// amount is the amount of each payment.
const amount = 1900

// purchases are what a part can do at Stripe.
var purchases = map[string][]purchase{
	"customer": {{ID: "customer", Uses: "stripe.customer.create", With: map[string]any{"name": "Ada"}, Live: "customer"}},
	"coupon":   {{ID: "coupon", Uses: "stripe.coupon.create", With: map[string]any{"percent_off": 10}, Live: "coupon"}},
	"subscription": {
		{ID: "customer", Uses: "stripe.customer.create",
			With: map[string]any{"name": "Ada", "payment_method": "pm_card_visa"}, Live: "customer"},
		{ID: "product", Uses: "stripe.product.create", With: map[string]any{"name": "Site"}, Live: "product"},
		{ID: "price", Uses: "stripe.price.create",
			With: map[string]any{"product": "customer", "currency": "eur", "unit_amount": amount, "interval": "month"},
			Live: "price"},
		{ID: "subscription", Uses: "stripe.subscription.create", With: map[string]any{}, Live: "subscription"},
	},
	"charge": {
		{ID: "intent", Uses: "stripe.payment_intent.create", With: intent("automatic"), Live: "payment_intent"},
		{ID: "confirm", Uses: "stripe.payment_intent.confirm"},
	},
	"hold": {
		{ID: "intent", Uses: "stripe.payment_intent.create", With: intent("manual"), Live: "payment_intent"},
		{ID: "confirm", Uses: "stripe.payment_intent.confirm"},
	},
	"release": {
		{ID: "intent", Uses: "stripe.payment_intent.create", With: intent("manual"), Live: "payment_intent", Ended: true},
		{ID: "confirm", Uses: "stripe.payment_intent.confirm"},
		{ID: "cancel", Uses: "stripe.payment_intent.cancel"},
	},
	"refund": {
		{ID: "intent", Uses: "stripe.payment_intent.create", With: intent("automatic"), Live: "payment_intent", Ended: true},
		{ID: "confirm", Uses: "stripe.payment_intent.confirm"},
		{ID: "refund", Uses: "stripe.refund.create"},
	},
	"capture": {
		{ID: "intent", Uses: "stripe.payment_intent.create", With: intent("manual"), Live: "payment_intent"},
		{ID: "confirm", Uses: "stripe.payment_intent.confirm"},
		{ID: "capture", Uses: "stripe.payment_intent.capture"},
	},
}

func intent(capture string) map[string]any {
	with := map[string]any{"amount": amount, "currency": "eur", "payment_method": "pm_card_visa"}
	if capture == "manual" {
		with["capture_method"] = capture
	}
	return with
}

func purchaseKinds() []string { return slices.Sorted(maps.Keys(purchases)) }

// moved is what a kind of part takes from a customer.
func moved(kind string) int64 {
	if kind == "charge" || kind == "capture" || kind == "subscription" {
		return amount
	}
	return 0
}

// payments are steps at Stripe, which any host may do.
type payments struct {
	Kind string

	n    int
	mark string // in the metadata of all that the part makes
}

func (p *payments) name(n int) { p.n = n }

func (p *payments) id(of string) string { return fmt.Sprintf("%s-%d", of, p.n) }

func (p *payments) actions() (all []string) {
	for _, s := range purchases[p.Kind] {
		all = append(all, s.Uses)
	}
	return all
}

func (p *payments) firstStep() string { return p.id(purchases[p.Kind][0].ID) }

func (p *payments) host() (int, bool) { return 0, false }

func (p *payments) setUp(_ context.Context, _ *run, task string) error {
	p.mark = fmt.Sprintf("%s/%d", task, p.n)
	return nil
}

func (p *payments) steps() (all []map[string]any) {
	made := func(what string) string { return fmt.Sprintf("${{ steps.%s.outputs.id }}", p.id(what)) }
	for _, s := range purchases[p.Kind] {
		with := map[string]any{}
		maps.Copy(with, s.With)
		if s.Live != "" {
			with["metadata"] = map[string]any{"crash": p.mark}
		}
		switch s.ID {
		case "price":
			with["product"] = made("product")
		case "subscription":
			with["customer"], with["price"] = made("customer"), made("price")
		case "confirm", "capture", "cancel", "refund":
			with["payment_intent"] = made("intent")
		}
		all = append(all, map[string]any{"id": p.id(s.ID), "uses": s.Uses, "with": with})
	}
	return all
}

// judgePart counts the live objects with the mark of the part. The balance at Stripe is checked at
// the end of the run.
func (p *payments) judgePart(_ context.Context, r *run, e taskEnd) (v verdict, err error) {
	live := map[string][]string{}
	state := r.emulator.State()
	for _, line := range state.Live {
		kind, rest, _ := strings.Cut(line, " ")
		id, status, _ := strings.Cut(rest, " ")
		if m, ok := state.Objects[id]["metadata"].(map[string]any); ok && m["crash"] == p.mark {
			live[kind] = append(live[kind], id+" is "+status)
		}
	}
	if e.committed() {
		for _, s := range purchases[p.Kind] {
			switch n := len(live[s.Live]); {
			case s.Ended && n > 0:
				v.Lost = append(v.Lost,
					fmt.Sprintf("%s: the end that the task made of it is undone: %s", p.id(s.ID), live[s.Live][0]))
			case s.Live != "" && !s.Ended && n == 0:
				v.Lost = append(v.Lost, fmt.Sprintf("%s: there is none, and the task has committed", p.id(s.ID)))
			}
		}
	}
	for kind, all := range live {
		switch {
		case len(all) > 1:
			v.Doubled = append(v.Doubled, fmt.Sprintf("%s of %s: %s", kind, p.mark, strings.Join(all, ", ")))
		case !e.committed() && !named(e, strings.Fields(all[0])[0]):
			v.Lost = append(v.Lost, fmt.Sprintf("%s of %s, not taken back: %s", kind, p.mark, all[0]))
		}
	}
	return v, nil
}

// named reports whether the report names a thing among the losses.
func named(e taskEnd, thing string) bool {
	return slices.ContainsFunc(e.losses(), func(l string) bool { return strings.Contains(l, thing) })
}

func (p *payments) clear(context.Context, *run) error { return nil }

func (p *payments) String() string { return fmt.Sprintf("stripe-%d: %s", p.n, p.Kind) }
