package stripe

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	encoding "github.com/stripe/stripe-go/v76/form"

	"github.com/seed-62bf7108/unwind/activities"
)

// Plan shows the request and the objects that it builds on. It only reads.
func (a *action) Plan(ctx context.Context, e activities.Entry, step activities.Step) (activities.Change, error) {
	c, err := a.openSession(ctx, a.forward, e.Place.Journal)
	if err != nil {
		return activities.Change{}, err
	}
	req, err := a.kind.build(step.With, e.Token)
	if err != nil {
		return activities.Change{}, err
	}
	change, err := a.describeChange(c, req, e.Place.Journal)
	return change, asActionError(err)
}

// parentFields are the fields of a parent object that a person should see, and that an approval
// depends on.
var parentFields = map[string][]string{
	"customer": {"name", "email", "currency", "invoice_settings.default_payment_method"},
	"product":  {"name", "active"},
	"price":    {"product", "active", "currency", "unit_amount", "recurring.interval", "recurring.interval_count"},
	"coupon":   {"name", "valid", "percent_off", "amount_off", "currency", "duration"},
	"payment_intent": {"status", "customer", "currency", "amount", "amount_capturable", "amount_received",
		"capture_method", "payment_method", "latest_charge"},
	"charge": {"status", "amount_captured", "amount_refunded"},
}

func (a *action) describeChange(c *session, req request, account string) (activities.Change, error) {
	diff := &strings.Builder{}
	fmt.Fprintf(diff, "POST %s\n", req.path)
	values := &encoding.Values{}
	encoding.AppendTo(values, req.params)
	sent := values.ToValues()
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		fmt.Fprintf(diff, "+ %s = %s\n", name, strings.Join(sent[name], ", "))
	}
	var parents []object
	for _, path := range req.parents {
		o, err := c.getObject(path)
		if isGone(err) || err == nil && o.isDeleted() {
			return activities.Change{}, activities.Errorf(activities.ActionDenied, "%s does not exist", path)
		}
		if err != nil {
			return activities.Change{}, err
		}
		parents = append(parents, o)
		if charge := o.text("latest_charge"); charge != "" {
			paid, err := c.getObject("/v1/charges/" + charge)
			if err != nil {
				return activities.Change{}, err
			}
			parents = append(parents, paid)
		}
	}
	for _, o := range parents {
		fmt.Fprintf(diff, "  %s %s:", o.text("object"), o.text("id"))
		for _, field := range parentFields[o.text("object")] {
			if v := o.valueAt(field); v != nil {
				fmt.Fprintf(diff, " %s=%s", field, jsonLine(v))
			}
		}
		diff.WriteString("\n")
	}
	change := activities.Change{
		Summary: a.summarize(sent, parents), Diff: diff.String(), Strategy: a.kind.strategy, Undo: a.kind.undo,
		Losses: a.kind.losses,
		Risk:   a.kind.risk, Digest: activities.DigestOf([]byte(account), []byte(diff.String())),
	}
	if a.kind.actsOnObject() || a.kind.noun == "refund" {
		change.Keys = []string{"stripe:" + parents[0].text("id")}
	}
	a.setRisk(&change, parents)
	if elsewhere := a.config.elsewhere(); elsewhere != "" {
		change.Facts = append(change.Facts, "the request goes to "+elsewhere)
	}
	if strings.HasSuffix(account, ":live") {
		change.Facts = append(change.Facts, "this is a live account: the money is real")
	}
	return change, nil
}

// summarize says what is done, to what, and for how much.
func (a *action) summarize(sent url.Values, parents []object) string {
	what := strings.TrimSuffix(a.kind.summary, ".")
	if len(parents) > 0 {
		what += fmt.Sprintf(" (%s)", parents[0].text("id"))
	}
	if amount := a.amount(sent, parents); amount != "" {
		what += ": " + amount
	}
	return what
}

// setRisk sets the risk of this change, and the facts that it depends on.
func (a *action) setRisk(change *activities.Change, parents []object) {
	switch {
	case a.kind.strategy == activities.Irreversible:
		change.Facts = append(change.Facts, "it cannot be undone")
	case a.kind.actsOnObject():
		change.Facts = append(change.Facts, "it moves or holds money")
	case a.kind.noun == "subscription":
		for _, o := range parents {
			if o.text("object") != "price" {
				continue
			}
			if amount := o.number("unit_amount"); amount > 0 {
				change.Risk = activities.High
				change.Facts = append(change.Facts,
					fmt.Sprintf("the customer is charged %d %s for each unit, at once or after a trial", amount, o.text("currency")))
			} else {
				change.Risk = activities.Low
				change.Facts = append(change.Facts, "the price is free")
			}
		}
	}
}
