package emulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
)

// Counters count effects that deleting an object does not reverse.
type Counters struct {
	// Holds are authorizations of manual-capture intents.
	Holds int `json:"holds"`
	// Charges and Refunds are movements of money; Charged and Refunded their sums, in the smallest
	// unit of any currency.
	Charges  int   `json:"charges"`
	Charged  int64 `json:"charged"`
	Refunds  int   `json:"refunds"`
	Refunded int64 `json:"refunded"`
	// Mails are receipts and invoices sent to customers.
	Mails int `json:"mails"`
}

// State is what GET /_emulator answers.
type State struct {
	// Live lists every object that still has an effect: see Live.
	Live []string `json:"live"`
	// Objects are the same with all their fields, by id.
	Objects  map[string]map[string]any `json:"objects"`
	Counters Counters                  `json:"counters"`
}

// Counters returns the counts so far.
func (e *Emulator) Counters() Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counters
}

// Live lists, sorted, the objects that still have an effect on the world, as "customer cus_1
// active": customers, products and coupons that are not deleted, products and prices that are
// active, subscriptions that are not canceled, invoices that wait for payment, payment intents that
// are neither canceled nor fully refunded.
func (e *Emulator) Live() []string { return e.State().Live }

// State returns a copy of every live object, and the counters.
func (e *Emulator) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{Live: []string{}, Objects: map[string]map[string]any{}, Counters: e.counters}
	for _, a := range e.accounts {
		for _, o := range a.order {
			if state := a.describeEffect(o); state != "" {
				s.Live = append(s.Live, fmt.Sprintf("%s %s %s", o.kind, o.id, state))
				s.Objects[o.id] = o.copy()
			}
		}
	}
	sort.Strings(s.Live)
	return s
}

// copy is a copy of an object's fields, as the API shows them.
func (o *object) copy() map[string]any {
	var fields map[string]any
	raw, err := json.Marshal(o.fields)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		panic(err) // maps of plain values
	}
	delete(fields, "client_secret")
	return fields
}

// describeEffect says in a word why an object is live; empty if it is not.
func (a *account) describeEffect(o *object) string {
	if o.deleted {
		return ""
	}
	switch o.kind {
	case "customer", "coupon":
		return "active"
	case "product", "price":
		if o.fields["active"] == true {
			return "active"
		}
	case "subscription":
		if s := o.text("status"); s != "canceled" {
			return s
		}
	case "invoice":
		if s := o.text("status"); s == "open" || s == "draft" {
			return s
		}
	case "payment_intent":
		s := o.text("status")
		if c := a.objects[o.text("latest_charge")]; s == "succeeded" && c != nil && c.fields["refunded"] == true {
			return ""
		}
		if s != "canceled" {
			return s
		}
	}
	return ""
}

// Object returns a copy of an object's fields; nil if it does not exist or is deleted.
func (e *Emulator) Object(id string) map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.accounts {
		if o := a.objects[id]; o != nil && !o.deleted {
			return o.copy()
		}
	}
	return nil
}

func (e *Emulator) serveState(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(e.State()) //nolint:errcheck // the client has gone
}
