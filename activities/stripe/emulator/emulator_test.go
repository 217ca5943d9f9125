package emulator_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"

	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// service is an emulator with the typed client that programs use.
type service struct {
	*emulator.Emulator
	clock *emulator.Clock
	url   string
	api   *client.API
}

func start(t *testing.T) *service {
	t.Helper()
	s := &service{clock: &emulator.Clock{}}
	s.Emulator = emulator.New(emulator.Options{Now: s.clock.Now})
	server, err := s.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	s.url = server.URL
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(server.URL), MaxNetworkRetries: stripe.Int64(0), LeveledLogger: &stripe.LeveledLogger{},
		HTTPClient: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	})
	s.api = client.New("sk_test_typed", &stripe.Backends{API: backend})
	return s
}

func (s *service) customer(key, name string) (*stripe.Customer, error) {
	p := &stripe.CustomerParams{Name: stripe.String(name)}
	if key != "" {
		p.SetIdempotencyKey(key)
	}
	return s.api.Customers.New(p)
}

func replayed(r *stripe.APIResponse) bool { return r.Header.Get("Idempotent-Replayed") == "true" }

func kind(err error) (int, stripe.ErrorType) {
	var e *stripe.Error
	if !errors.As(err, &e) {
		return 0, ""
	}
	return e.HTTPStatusCode, e.Type
}

func TestAKeyActsOnce(t *testing.T) {
	s := start(t)
	first, err := s.customer("k", "Ada")
	require.NoError(t, err)
	require.False(t, replayed(first.LastResponse))
	again, err := s.customer("k", "Ada")
	require.NoError(t, err)
	require.True(t, replayed(again.LastResponse))
	require.Equal(t, first.ID, again.ID)

	_, err = s.customer("k", "Grace")
	status, what := kind(err)
	require.Equal(t, 400, status)
	require.Equal(t, stripe.ErrorTypeIdempotency, what)
	p := &stripe.ProductParams{Name: stripe.String("Ada")}
	p.SetIdempotencyKey("k")
	_, err = s.api.Products.New(p)
	_, what = kind(err)
	require.Equal(t, stripe.ErrorTypeIdempotency, what, "another endpoint")

	_, err = s.api.Customers.Del(first.ID, nil)
	require.NoError(t, err)
	again, err = s.customer("k", "Ada")
	require.NoError(t, err)
	require.False(t, again.Deleted, "what is replayed is the answer of then")
	now, err := s.api.Customers.Get(first.ID, nil)
	require.NoError(t, err)
	require.True(t, now.Deleted)

	s.clock.Advance(24 * time.Hour)
	anew, err := s.customer("k", "Ada")
	require.NoError(t, err)
	require.NotEqual(t, first.ID, anew.ID, "a key is forgotten after a day")
}

func TestErrorsAreSavedUnlessNothingWasBegun(t *testing.T) {
	s := start(t)
	s.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.FailAfter, Times: 1})
	for range 2 {
		_, err := s.customer("k", "Ada")
		status, _ := kind(err)
		require.Equal(t, 500, status)
	}
	require.Len(t, s.Live(), 1)

	p := &stripe.ProductParams{}
	p.SetIdempotencyKey("p")
	_, err := s.api.Products.New(p)
	status, _ := kind(err)
	require.Equal(t, 400, status)
	p.Name = stripe.String("Plan")
	_, err = s.api.Products.New(p)
	require.NoError(t, err, "a malformed request leaves its key free")
}

func TestARunningKeyIsAConflict(t *testing.T) {
	s := start(t)
	seen, until := make(chan struct{}), make(chan struct{})
	s.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: emulator.Wait, Until: until, Times: 1,
		Seen: func(emulator.Received) { close(seen) }})
	first := make(chan error, 1)
	go func() { _, err := s.customer("k", "Ada"); first <- err }()
	<-seen
	_, err := s.customer("k", "Ada")
	status, _ := kind(err)
	require.Equal(t, 409, status)
	close(until)
	require.NoError(t, <-first)
	require.Len(t, s.Live(), 1)
}

func TestConnectionsThatBreak(t *testing.T) {
	s := start(t)
	for do, live := range map[emulator.Effect]int{emulator.DropBefore: 0, emulator.DropAfter: 1} {
		s.Inject(emulator.Fault{On: emulator.Request("POST", "/v1/customers"), Do: do, Times: 1})
		_, err := s.customer("", "Ada")
		require.Error(t, err)
		require.Len(t, s.Live(), live)
		for _, o := range s.State().Objects {
			_, err := s.api.Customers.Del(o["id"].(string), nil)
			require.NoError(t, err)
		}
	}
}

func TestListsPageFromTheNewest(t *testing.T) {
	s := start(t)
	var ids []string
	for range 5 {
		c, err := s.customer("", "Ada")
		require.NoError(t, err)
		ids = append([]string{c.ID}, ids...)
	}
	s.clock.Advance(time.Hour)
	since := s.clock.Now().Unix()
	late, err := s.customer("", "Grace")
	require.NoError(t, err)
	ids = append([]string{late.ID}, ids...)

	p := &stripe.CustomerListParams{}
	p.Limit = stripe.Int64(2)
	var got []string
	for i := s.api.Customers.List(p); i.Next(); {
		got = append(got, i.Customer().ID)
	}
	require.Equal(t, ids, got)

	p = &stripe.CustomerListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: since}}
	got = nil
	for i := s.api.Customers.List(p); i.Next(); {
		got = append(got, i.Customer().ID)
	}
	require.Equal(t, []string{late.ID}, got)
}

func TestMoneyIsCounted(t *testing.T) {
	s := start(t)
	pi, err := s.api.PaymentIntents.New(&stripe.PaymentIntentParams{Amount: stripe.Int64(2000),
		Currency:      stripe.String("eur"),
		PaymentMethod: stripe.String("pm_card_visa"), CaptureMethod: stripe.String("manual"),
		ReceiptEmail: stripe.String("a@example.com")})
	require.NoError(t, err)
	require.Equal(t, stripe.PaymentIntentStatusRequiresConfirmation, pi.Status)
	_, err = s.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{})
	status, _ := kind(err)
	require.Equal(t, 400, status)
	_, err = s.api.PaymentIntents.Confirm(pi.ID, &stripe.PaymentIntentConfirmParams{})
	require.NoError(t, err)
	pi, err = s.api.PaymentIntents.Capture(pi.ID, &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(1500)})
	require.NoError(t, err)
	require.EqualValues(t, 1500, pi.AmountReceived)
	_, err = s.api.PaymentIntents.Cancel(pi.ID, &stripe.PaymentIntentCancelParams{})
	require.Error(t, err)
	refund, err := s.api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID)})
	require.NoError(t, err)
	require.EqualValues(t, 1500, refund.Amount)
	_, err = s.api.Refunds.New(&stripe.RefundParams{PaymentIntent: stripe.String(pi.ID)})
	require.Error(t, err)
	require.Empty(t, s.Live())
	want := emulator.Counters{Holds: 1, Charges: 1, Charged: 1500, Refunds: 1, Refunded: 1500, Mails: 2}
	require.Equal(t, want, s.Counters())

	resp, err := http.Get(s.url + "/_emulator")
	require.NoError(t, err)
	defer resp.Body.Close()
	var state emulator.State
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&state))
	require.Equal(t, emulator.State{Live: []string{}, Objects: map[string]map[string]any{}, Counters: want}, state)
}

func TestAccountsAreApart(t *testing.T) {
	s := start(t)
	me, err := s.api.Accounts.Get()
	require.NoError(t, err)
	require.Equal(t, "acct_emulator", me.ID)
	s.api.Init("sk_live_never", &stripe.Backends{API: s.api.Accounts.B})
	_, err = s.customer("", "Ada")
	status, _ := kind(err)
	require.Equal(t, http.StatusUnauthorized, status)
}
