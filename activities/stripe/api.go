package stripe

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// object is one of Stripe's, as its API returned it.
type object map[string]any

func (o object) text(path string) string {
	s, _ := o.valueAt(path).(string)
	return s
}

func (o object) number(path string) int64 {
	n, _ := o.valueAt(path).(float64)
	return int64(n)
}

// valueAt is the value at a dotted path such as "items.data.0.price.id"; nil if there is none.
func (o object) valueAt(path string) any {
	var v any = map[string]any(o)
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// isDeleted says that Stripe keeps only a stub of the object.
func (o object) isDeleted() bool { return o["deleted"] == true }

// response receives an answer from stripe-go.
type response struct {
	stripe.APIResource
	fields object
}

func (r *response) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &r.fields) }

// send sends one request. It always has parameters: without them stripe-go takes neither a context
// nor a key.
func (c *session) send(method, path string, params stripe.ParamsContainer, key string) (o object, replayed bool,
	err error) {
	common := params.GetParams()
	common.Context = c.ctx
	if key != "" {
		common.SetIdempotencyKey(key)
	}
	r := &response{}
	err = c.guard.Run(func() error {
		if err := c.backend.Call(method, path, c.key, params, r); err != nil {
			return problemOf(err)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if secret := r.fields.text("client_secret"); secret != "" {
		activities.MaskerFrom(c.ctx).Add(secret)
		delete(r.fields, "client_secret")
	}
	replayed = r.LastResponse != nil && r.LastResponse.Header.Get("Idempotent-Replayed") == "true"
	return r.fields, replayed, nil
}

func (c *session) getObject(path string) (object, error) {
	o, _, err := c.send(http.MethodGet, path, &stripe.Params{}, "")
	return o, err
}

// postWithKey sends a POST under an idempotency key. While another request with that key runs, it
// waits for its answer, for as long as a request may take.
func (c *session) postWithKey(path string, params stripe.ParamsContainer, key string) (o object, replayed bool,
	err error) {
	point.Reach(leaving)
	defer point.Reach(answered)
	wait, until := 50*time.Millisecond, time.Now().Add(c.config.HTTPTimeout)
	for {
		o, replayed, err = c.send(http.MethodPost, path, params, key)
		if !isBusy(err) || time.Now().After(until) {
			return o, replayed, err
		}
		select {
		case <-c.ctx.Done():
			return nil, false, err
		case <-time.After(wait):
			wait = min(2*wait, time.Second)
		}
	}
}

// deleteObject deletes the object at a path. It needs no key: deleting is idempotent.
func (c *session) deleteObject(path string, params stripe.ParamsContainer) error {
	point.Reach(leaving)
	defer point.Reach(answered)
	_, _, err := c.send(http.MethodDelete, path, params, "")
	if isGone(err) {
		return nil
	}
	return err
}

// The points before and after every request that changes something.
const (
	leaving  = "stripe.request:leaving"
	answered = "stripe.request:answered"
)

// resends is how many keys one request of an undo may use up: all but the last are stuck with a
// status 500.
const resends = 3

// postOnce posts a request of an undo under a key of its own, so that it acts once, however late a
// second sender wakes up. If that key is stuck with a status 500, it takes the next one: such
// requests may act twice without harm.
func (c *session) postOnce(path string, params stripe.ParamsContainer, key string) (o object, err error) {
	for n := range resends {
		o, _, err = c.postWithKey(path, params, key+"."+strconv.Itoa(n))
		if !isStuck(err) {
			break
		}
	}
	return o, err
}

// formParams makes parameters of alternating names and values.
func formParams(pairs ...string) *stripe.Params {
	p := &stripe.Params{}
	for i := 0; i+1 < len(pairs); i += 2 {
		p.AddExtra(pairs[i], pairs[i+1])
	}
	return p
}

// maxPages bounds a search: 100 pages are 10,000 objects.
const maxPages = 100

// listObjects visits all objects at a path, the newest first. It is incomplete if there are more
// than maxPages pages.
func (c *session) listObjects(path string, filter url.Values, visit func(object)) (complete bool, err error) {
	after := ""
	for range maxPages {
		p := formParams("limit", "100")
		for name, values := range filter {
			p.AddExtra(name, values[0])
		}
		if after != "" {
			p.AddExtra("starting_after", after)
		}
		page, _, err := c.send(http.MethodGet, path, p, "")
		if err != nil {
			return false, err
		}
		items, _ := page["data"].([]any)
		for _, item := range items {
			if fields, ok := item.(map[string]any); ok {
				o := object(fields)
				delete(o, "client_secret")
				visit(o)
				after = o.text("id")
			}
		}
		if page["has_more"] != true {
			return true, nil
		}
	}
	return false, nil
}
