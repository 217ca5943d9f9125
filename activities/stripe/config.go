package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
)

// Config says with which account a worker works, and how patient it is.
type Config struct {
	// Key returns the API key. It is asked at each use, so that a rotated key is picked up.
	Key func() (string, error)
	// AllowLive lets the worker use a live key (sk_live_, rk_live_): real money. Defaults to false.
	AllowLive bool
	// BaseURL is where the API is. Defaults to Stripe's own.
	BaseURL string
	// HTTPTimeout bounds one request. Keep it well below the steps' timeout. Defaults to 20 s.
	HTTPTimeout time.Duration
	// BreakerTrips is how many requests in a row Stripe must fail to answer before no more are sent. Defaults to 5.
	BreakerTrips uint32
	// BreakerPause is how long they are not. Defaults to 30 s.
	BreakerPause time.Duration
}

// WithDefaults fills in what is left zero.
func (c Config) WithDefaults() Config {
	if c.BaseURL == "" {
		c.BaseURL = stripe.APIURL
	}
	if c.HTTPTimeout == 0 {
		c.HTTPTimeout = 20 * time.Second
	}
	if c.BreakerTrips == 0 {
		c.BreakerTrips = 5
	}
	if c.BreakerPause == 0 {
		c.BreakerPause = 30 * time.Second
	}
	return c
}

func (c Config) validate() error {
	u, err := url.Parse(c.BaseURL)
	switch {
	case c.Key == nil:
		return errors.New("stripe: the config names no key; name the secret that holds it")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("stripe: base URL %q is no http or https URL", c.BaseURL)
	case c.HTTPTimeout < 0 || c.BreakerPause < 0:
		return errors.New("stripe: a timeout is negative")
	}
	return nil
}

// service is what the actions of one world share.
type service struct {
	config        Config
	backend       stripe.Backend
	forward, back *breakerGuard
	now           func() time.Time

	mu       sync.Mutex
	accounts map[string]string // by key
}

// New makes the world "stripe". It sends nothing: a key that does not work is found by World.Journal.
func New(config Config) (activities.World, error) {
	s, err := newService(config)
	if err != nil {
		return activities.World{}, err
	}
	w := activities.World{Name: "stripe", Journal: s.journalID}
	for _, k := range kinds() {
		w.Actions = append(w.Actions, &action{service: s, kind: k, spec: k.spec()})
	}
	return w, nil
}

func newService(config Config) (*service, error) {
	config = config.WithDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &service{
		config: config,
		// The generic half of stripe-go: its typed parameters and its transport, with one engine over them. Retries are
		// the workflow's, its logger would print bodies, and its telemetry is nobody's business.
		backend: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			HTTPClient:        &http.Client{Timeout: config.HTTPTimeout},
			URL:               stripe.String(config.BaseURL),
			MaxNetworkRetries: stripe.Int64(0),
			EnableTelemetry:   stripe.Bool(false),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		}),
		forward:  newGuard("Stripe (forward)", config),
		back:     newGuard("Stripe (undo)", config),
		now:      time.Now,
		accounts: map[string]string{},
	}, nil
}

// session is one call of an action: its context, its key, and the breaker of its direction.
type session struct {
	*service
	ctx   context.Context //nolint:containedctx // a session is one call, and ends with it
	key   string
	guard *breakerGuard
}

// openSession begins a call for an entry. A key of another account than the one that holds the entry's record is WrongPlace.
func (s *service) openSession(ctx context.Context, g *breakerGuard, journal string) (*session, error) {
	c, err := s.newSession(ctx, g)
	if err != nil {
		return nil, err
	}
	id, err := c.accountID()
	if err != nil {
		return nil, asActionError(err)
	}
	if id != journal {
		return nil, activities.Errorf(activities.WrongPlace, "the record is in Stripe account %s; this worker's key is of %s", journal, id)
	}
	return c, nil
}

func (s *service) newSession(ctx context.Context, g *breakerGuard) (*session, error) {
	key, err := s.config.Key()
	if err != nil {
		return nil, activities.Errorf(activities.Refused, "the Stripe key: %v", err)
	}
	activities.MaskerFrom(ctx).Add(key)
	if isLive(key) && !s.config.AllowLive {
		return nil, activities.Errorf(activities.Refused, "the Stripe key is a live one; allow live keys by name in the worker's config, or use a test key")
	}
	return &session{service: s, ctx: ctx, key: key, guard: g}, nil
}

func isLive(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// journalID is the record's home: the account and its mode, for the record is in the API itself.
func (s *service) journalID(ctx context.Context) (string, error) {
	c, err := s.newSession(ctx, s.forward)
	if err != nil {
		return "", err
	}
	id, err := c.accountID()
	return id, asActionError(err)
}

func (c *session) accountID() (string, error) {
	c.mu.Lock()
	id := c.accounts[c.key]
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	account, err := c.get("/v1/account")
	if err != nil {
		return "", err
	}
	mode := "test"
	if isLive(c.key) {
		mode = "live"
	}
	id = account.text("id") + ":" + mode
	c.mu.Lock()
	c.accounts[c.key] = id
	c.mu.Unlock()
	return id, nil
}
