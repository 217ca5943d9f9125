package stripe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
)

// bench is an emulator, a worker's world on it, and a clock that both follow.
type bench struct {
	t       *testing.T
	em      *emulator.Emulator
	clock   *emulator.Clock
	url     string
	service *service
	journal string
	steps   int
}

const timeout = 300 * time.Millisecond

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, clock: &emulator.Clock{}}
	b.em = emulator.New(emulator.Options{Now: b.clock.Now,
		Accounts: map[string]string{"sk_test_other_account": "acct_other"}})
	server, err := b.em.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	b.url = server.URL
	b.service = b.worker(Config{})
	b.journal, err = b.service.journalID(t.Context())
	require.NoError(t, err)
	return b
}

// worker is another worker's service, on the same emulator and clock.
func (b *bench) worker(c Config) *service {
	b.t.Helper()
	if c.Key == nil {
		c.Key = func() (string, error) { return "sk_test_secret_of_ours", nil }
	}
	if c.HTTPTimeout == 0 {
		c.HTTPTimeout = timeout
	}
	if c.BreakerTrips == 0 {
		c.BreakerTrips = 1000 // the breaker has tests of its own
	}
	c.BaseURL = b.url
	s, err := newService(c)
	require.NoError(b.t, err)
	s.now = b.clock.Now
	return s
}

// step is a step of a task: an action with its entry and its parameters.
type step struct {
	*bench
	action *action
	entry  activities.Entry
	with   json.RawMessage
}

// step makes one; with is what stands in the task file.
func (b *bench) step(action string, with map[string]any) *step {
	b.t.Helper()
	b.steps++
	raw, err := json.Marshal(with)
	require.NoError(b.t, err)
	for _, k := range kinds() {
		if k.name() != "stripe."+action {
			continue
		}
		return &step{bench: b, action: b.actionOf(b.service, k), with: raw, entry: activities.Entry{
			Version: activities.EntryVersion, Seq: b.steps, Step: action, Action: k.name(), UndoType: k.name() + ".undo",
			Token: activities.NewToken("run", fmt.Sprint(b.steps), 1), Place: activities.Place{Journal: b.journal}, Params: raw,
			Since: b.clock.Now(),
		}}
	}
	b.t.Fatalf("no action %s", action)
	return nil
}

func (b *bench) actionOf(s *service, k *kind) *action {
	return &action{service: s, kind: k, spec: k.spec()}
}

// elsewhere is the same step on another worker.
func (s *step) elsewhere() *step {
	other := *s
	other.action = s.actionOf(s.worker(Config{}), s.action.kind)
	return &other
}

func (s *step) apply() (activities.Result, error) { return s.applyWant("") }

func (s *step) applyWant(want activities.Digest) (activities.Result, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 120*time.Second)
	defer cancel()
	return s.action.Apply(ctx, s.entry, activities.Step{ID: s.entry.Step, With: s.with}, want)
}

func (s *step) undo() (activities.Undone, error) { return s.undoForced("") }

func (s *step) undoForced(force activities.Digest) (activities.Undone, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 120*time.Second)
	defer cancel()
	return s.action.Undo(ctx, s.entry, activities.Decision{Force: force})
}

// applied applies the step and returns the id of what it made.
func (s *step) applied() string {
	s.t.Helper()
	r, err := s.apply()
	require.NoError(s.t, err)
	id, _ := r.Outputs["id"].(string)
	require.NotEmpty(s.t, id)
	return id
}

// undone undoes the step and requires an outcome; a second undo, on another worker, says the same.
func (s *step) undone(want activities.Outcome) activities.Undone {
	s.t.Helper()
	u, err := s.undo()
	require.NoError(s.t, err)
	require.Equal(s.t, want, u.Outcome, u.Observed)
	again, err := s.elsewhere().undo()
	require.NoError(s.t, err)
	require.Equal(s.t, u, again)
	return u
}

// fenced requires that a late forward is refused.
func (s *step) fenced() {
	s.t.Helper()
	_, err := s.elsewhere().apply()
	require.Equal(s.t, activities.Fenced, activities.TypeOf(err), "%v", err)
}

func (s *step) fails(want activities.ErrorType) *activities.Error {
	s.t.Helper()
	_, err := s.apply()
	var e *activities.Error
	require.ErrorAs(s.t, err, &e)
	require.Equal(s.t, want, e.Type, e.Message)
	return e
}

func (b *bench) nothingLives() {
	b.t.Helper()
	require.Empty(b.t, b.em.Live())
}

// money requires counts of charges and refunds.
func (b *bench) money(charges, refunds int) {
	b.t.Helper()
	got := b.em.Counters()
	require.Equal(b.t, [2]int{charges, refunds}, [2]int{got.Charges, got.Refunds}, "charges and refunds")
}

// post is what somebody else does, with a client of his own.
func (b *bench) post(path string, pairs ...string) map[string]any {
	b.t.Helper()
	return send(b.t, b.url, http.MethodPost, path, pairs...)
}

func send(t testing.TB, base, method, path string, pairs ...string) map[string]any {
	t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(values.Encode()))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer sk_test_somebody_else")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s %s: %v", method, path, answer)
	return answer
}

// paying is a customer whose card pays.
func (b *bench) paying() *step {
	return b.step("customer.create",
		map[string]any{"name": "Ada", "email": "ada@example.com", "payment_method": "pm_card_visa"})
}

// intent makes a payment intent of somebody else's.
func (b *bench) intent(pairs ...string) string {
	b.t.Helper()
	o := b.post("/v1/payment_intents",
		append([]string{"amount", "2000", "currency", "eur", "payment_method", "pm_card_visa"}, pairs...)...)
	return o["id"].(string)
}
