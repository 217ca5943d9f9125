package emulator

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// object is one object of an account.
type object struct {
	kind    string // "customer"
	id      string
	fields  map[string]any
	deleted bool
}

func (o *object) text(field string) string {
	s, _ := o.fields[field].(string)
	return s
}

func (o *object) number(field string) int64 {
	n, _ := o.fields[field].(int64)
	return n
}

// nouns map the first element of a path to the name of its objects, and to the prefix of their ids.
var nouns = map[string]struct{ object, prefix string }{
	"customers":       {"customer", "cus_"},
	"products":        {"product", "prod_"},
	"prices":          {"price", "price_"},
	"coupons":         {"coupon", "cpn_"},
	"subscriptions":   {"subscription", "sub_"},
	"payment_intents": {"payment_intent", "pi_"},
	"charges":         {"charge", "ch_"},
	"refunds":         {"refund", "re_"},
	"invoices":        {"invoice", "in_"},
}

// route carries out a call: list, create, retrieve, update, delete, or a verb on one object.
func (e *Emulator) route(c *call) answer {
	parts := strings.Split(strings.TrimPrefix(c.path, "/v1/"), "/")
	if c.path == "/v1/account" {
		return answerWith(map[string]any{"id": c.account, "object": "account", "country": "US"})
	}
	noun, known := nouns[parts[0]]
	if !known || len(parts) > 3 || !strings.HasPrefix(c.path, "/v1/") {
		return rejected(http.StatusNotFound, "", "Unrecognized request URL ("+c.method+": "+c.path+")").answer()
	}
	a := e.accountFor(c.account)
	r := request{e: e, account: a, form: c.form, noun: noun.object, prefix: noun.prefix}
	if len(parts) == 1 {
		if c.method == http.MethodGet {
			return r.listObjects()
		}
		return r.reply(r.createObject())
	}
	o := a.objects[parts[1]]
	if o == nil || o.kind != noun.object || o.deleted && (c.method != http.MethodGet || o.kind != "customer") {
		return missing(noun.object, parts[1]).answer()
	}
	if o.deleted { // only a customer can still be retrieved
		return answerWith(map[string]any{"id": o.id, "object": o.kind, "deleted": true})
	}
	switch {
	case len(parts) == 3 && c.method == http.MethodPost:
		return r.reply(r.verb(o, parts[2]))
	case c.method == http.MethodPost:
		return answerWith(r.updateObject(o))
	case c.method == http.MethodDelete:
		return r.reply(r.deleteObject(o))
	}
	return answerWith(o.fields)
}

// request is a call being carried out.
type request struct {
	e            *Emulator
	account      *account
	form         map[string][]string
	noun, prefix string
}

func (r request) reply(fields map[string]any, problem *apiError) answer {
	if problem != nil {
		return problem.answer()
	}
	return answerWith(fields)
}

func answerWith(fields map[string]any) answer {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err) // maps of plain values
	}
	return answer{status: http.StatusOK, body: raw, save: true}
}

func (r request) value(name string) string {
	if v := r.form[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// optional is a parameter's value, or null.
func (r request) optional(name string) any {
	if v := r.value(name); v != "" {
		return v
	}
	return nil
}

func (r request) number(name string, preset int64) (int64, *apiError) {
	v := r.value(name)
	if v == "" {
		return preset, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, invalid(name, "Invalid integer: "+v)
	}
	return n, nil
}

// setMetadata merges in the metadata parameters; an empty value removes a key.
func (r request) setMetadata(o *object) {
	metadata := map[string]any{}
	old, _ := o.fields["metadata"].(map[string]any)
	maps.Copy(metadata, old)
	for name, v := range r.form {
		key, ok := strings.CutPrefix(name, "metadata[")
		if !ok {
			continue
		}
		key = strings.TrimSuffix(key, "]")
		if metadata[key] = v[0]; v[0] == "" {
			delete(metadata, key)
		}
	}
	o.fields["metadata"] = metadata
}

// addObject adds an object to the account; id is the chosen id, or empty for a new one.
func (r request) addObject(noun, prefix, id string, fields map[string]any) *object {
	r.e.lastID++
	if id == "" {
		id = fmt.Sprintf("%semulator%08d", prefix, r.e.lastID) // so that nobody takes it for Stripe's own
	}
	o := &object{kind: noun, id: id, fields: fields}
	fields["id"], fields["object"], fields["created"], fields["livemode"] = id, noun, r.e.options.Now().Unix(), false
	if fields["metadata"] == nil {
		fields["metadata"] = map[string]any{}
	}
	r.account.objects[id] = o
	r.account.order = append(r.account.order, o)
	return o
}

// findObject returns an object of a kind that is not deleted; nil if there is none.
func (r request) findObject(noun, id string) *object {
	if o := r.account.objects[id]; o != nil && o.kind == noun && !o.deleted {
		return o
	}
	return nil
}

// eachObject calls f with every object of a kind that is not deleted, the oldest first.
func (a *account) eachObject(noun string, f func(*object)) {
	for _, o := range a.order {
		if o.kind == noun && !o.deleted {
			f(o)
		}
	}
}

// filters are the list parameters that compare a field.
var filters = []string{"customer", "product", "active", "subscription", "payment_intent", "email", "status", "price"}

func (r request) listObjects() answer {
	limit, problem := r.number("limit", 10)
	if problem == nil && (limit < 1 || limit > 100) {
		problem = invalid("limit", "Limit must be between 1 and 100")
	}
	since, problem2 := r.number("created[gte]", 0)
	if problem == nil {
		problem = problem2
	}
	if problem != nil {
		return problem.answer()
	}
	var matching []map[string]any
	r.account.eachObject(r.noun, func(o *object) {
		if o.number("created") >= since && r.passesFilters(o) {
			matching = append([]map[string]any{o.fields}, matching...)
		}
	})
	if after := r.value("starting_after"); after != "" {
		for i, fields := range matching {
			if fields["id"] == after {
				matching = matching[i+1:]
				break
			}
		}
	}
	more := int64(len(matching)) > limit
	if more {
		matching = matching[:limit]
	}
	if matching == nil {
		matching = []map[string]any{}
	}
	return answerWith(map[string]any{"object": "list", "data": matching, "has_more": more})
}

func (r request) passesFilters(o *object) bool {
	if o.kind == "subscription" && r.value("status") == "" && o.text("status") == "canceled" {
		return false
	}
	for _, name := range filters {
		want := r.value(name)
		if want == "" || name == "status" && want == "all" {
			continue
		}
		if fmt.Sprint(o.fields[name]) != want {
			return false
		}
	}
	return true
}
