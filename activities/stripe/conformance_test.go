package stripe

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

func TestMain(m *testing.M) { os.Exit(actiontest.Main(m, conformance()...)) }

func TestConformance(t *testing.T) {
	for _, c := range conformance() {
		t.Run(c.Name, func(t *testing.T) { actiontest.Run(t, c) })
	}
}

// canary stands for a secret in a parameter.
const canary = "canary \"value\" of a secret"

// conformance are all actions.
func conformance() []actiontest.Case {
	return []actiontest.Case{
		created("customer.create", activities.Compensated, canary,
			params{"name": "Ada", "email": "ada@example.com", "description": canary}, params{"name": "Grace"}, nil),
		created("product.create", activities.Restored, "", params{"name": "Plan"}, params{"name": "Other plan"}, nil),
		inBrief(created("price.create", activities.Compensated, "",
			params{"product": "PRODUCT", "currency": "eur", "unit_amount": 1200, "interval": "month"},
			params{"product": "PRODUCT", "currency": "eur", "unit_amount": 5}, renamesProduct)),
		inBrief(created("coupon.create", activities.Compensated, "", params{"percent_off": 25},
			params{"amount_off": 500, "currency": "eur"}, nil)),
		created("subscription.create", activities.Compensated, "",
			params{"customer": "CUSTOMER", "price": "PRICE"}, params{"customer": "CUSTOMER", "price": "PRICE", "quantity": 2},
			mailsCustomer),
		inBrief(created("payment_intent.create", activities.Compensated, "",
			params{"amount": 2000, "currency": "eur"}, params{"amount": 10, "currency": "usd"}, nil)),
		changed("payment_intent.confirm", "FIRST", "NEXT"),
		changed("payment_intent.capture", "FIRST_HELD", "NEXT_HELD"),
		cancelCase(),
		refundCase(),
		partialRefundCase(),
	}
}

type params map[string]any

// inBrief is a case of the code that customer.create and product.create test at each point. Its
// points have names of their own, so that no sample is enough.
func inBrief(c actiontest.Case) actiontest.Case {
	c.Brief, c.Sample = true, 0
	return c
}

func created(action string, undone activities.Outcome, secret string, with, next params,
	meanwhile func(testing.TB, string)) actiontest.Case {
	c := base(action, with, next)
	c.Undone, c.Secret, c.Meanwhile = undone, secret, meanwhile
	c.Anew = true
	c.Redone = func(left, now string) bool { return anonymous(left) == anonymous(now) }
	c.Drift = func(t testing.TB, dir string) {
		for id, o := range stateOf(t, dir).Objects {
			if m := o["metadata"].(map[string]any); m[tokenMark] != nil {
				send(t, read(t, dir, "URL"), http.MethodPost, "/v1/"+o["object"].(string)+"s/"+id, "metadata[changed]", rand.Text())
			}
		}
	}
	return c
}

var (
	madeID = regexp.MustCompile(`\b(cus|prod|price|sub|pi|in|ch|unwind)_(emulator)?[0-9a-f]+`)
	madeAt = regexp.MustCompile(`"created":[0-9]+`)
)

// anonymous is a manifest without the ids and the times of what was made: a redo makes something
// else of the same kind.
func anonymous(manifest string) string {
	lines := strings.Split(madeAt.ReplaceAllString(madeID.ReplaceAllString(manifest, "$1"), ""), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func renamesProduct(t testing.TB, dir string) {
	send(t, read(t, dir, "URL"), http.MethodPost, "/v1/products/"+read(t, dir, "PRODUCT"), "name", rand.Text())
}

func mailsCustomer(t testing.TB, dir string) {
	send(t, read(t, dir, "URL"), http.MethodPost, "/v1/customers/"+read(t, dir, "CUSTOMER"), "email",
		rand.Text()+"@example.com")
}

// changed is for the verbs on an intent. A used-up intent cannot be confirmed again, so the next
// generation has its own.
func changed(action, first, next string) actiontest.Case {
	c := base(action, params{"payment_intent": first}, params{"payment_intent": next})
	c.Undone = activities.Compensated
	c.Meanwhile = func(t testing.TB, dir string) {
		send(t, read(t, dir, "URL"), http.MethodPost, "/v1/payment_intents/"+read(t, dir, first), "payment_method",
			"pm_card_"+rand.Text())
	}
	// Of an intent that was used nothing is left but its visible end.
	c.Same = func(before, after string) bool {
		had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
		for _, line := range had {
			if !slices.Contains(has, line) && !strings.HasPrefix(line, "payment_intent ") {
				return false
			}
		}
		return !slices.ContainsFunc(has, func(line string) bool { return !slices.Contains(had, line) })
	}
	return c
}

func base(action string, with, next params) actiontest.Case {
	return actiontest.Case{
		Name: action, Action: "stripe." + action, Start: start,
		Open: func(dir string) (activities.World, error) {
			url, err := os.ReadFile(filepath.Join(dir, "URL"))
			if err != nil {
				return activities.World{}, err
			}
			return New(Config{Key: func() (string, error) { return "sk_test_conformance", nil }, BaseURL: string(url)})
		},
		With:     func(dir string) any { return with.in(dir) },
		Next:     func(dir string) any { return next.in(dir) },
		Manifest: manifest,
		Sample:   1,
	}
}

// in puts the ids of what start has made in place of their names.
func (p params) in(dir string) params {
	filled := params{}
	for name, value := range p {
		filled[name] = value
		if s, ok := value.(string); ok {
			if id, err := os.ReadFile(filepath.Join(dir, s)); err == nil {
				filled[name] = string(id)
			}
		}
	}
	return filled
}

// start brings up an account of its own, with all that any of the cases builds on.
func start(t testing.TB, dir string) {
	server, err := emulator.New(emulator.Options{Account: "acct_" + rand.Text()}).Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	keep := func(name, value string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600))
		return value
	}
	keep("URL", server.URL)
	made := func(name, path string, pairs ...string) string {
		return keep(name, send(t, server.URL, http.MethodPost, path, pairs...)["id"].(string))
	}
	made("CUSTOMER", "/v1/customers", "email", "theirs@example.com", "payment_method", "pm_card_visa",
		"invoice_settings[default_payment_method]", "pm_card_visa")
	product := made("PRODUCT", "/v1/products", "name", "theirs")
	made("PRICE", "/v1/prices", "product", product, "currency", "eur", "unit_amount", "700", "recurring[interval]",
		"month")
	for _, name := range []string{"FIRST", "NEXT"} {
		made(name, "/v1/payment_intents", "amount", "2000", "currency", "eur", "payment_method", "pm_card_visa")
		held := made(name+"_HELD", "/v1/payment_intents", "amount", "2000", "currency", "eur", "payment_method",
			"pm_card_visa", "capture_method", "manual")
		send(t, server.URL, http.MethodPost, "/v1/payment_intents/"+held+"/confirm")
	}
}

// manifest is what is live, field by field, and whose money is where; without the notes of the undo
// record.
func manifest(t testing.TB, dir string) string {
	state := stateOf(t, dir)
	lines := []string{fmt.Sprintf("money taken: %d", state.Counters.Charged-state.Counters.Refunded)}
	for id, o := range state.Objects {
		own := map[string]any{}
		for name, value := range o["metadata"].(map[string]any) {
			if !strings.HasPrefix(name, "unwind_") {
				own[name] = value
			}
		}
		o["metadata"] = own
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s %s %s", o["object"], id, raw))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// stateOf asks the emulator from outside.
func stateOf(t testing.TB, dir string) emulator.State {
	t.Helper()
	resp, err := http.Get(read(t, dir, "URL") + "/_emulator")
	require.NoError(t, err)
	defer resp.Body.Close()
	var state emulator.State
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&state))
	return state
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(raw)
}
