package stripe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/remote"
)

// Config names the account of a worker, and its timeouts.
type Config struct {
	// Key returns the API key. It is called for each use, so that a rotated key takes effect.
	Key func() (string, error)
	// AllowLive lets the worker use a live key (sk_live_, rk_live_): real money. Defaults to false.
	AllowLive bool
	// BaseURL is the URL of the API. Defaults to Stripe's own.
	BaseURL string
	// HTTPTimeout bounds one request. Keep it well below the steps' timeout. Defaults to 20 s.
	HTTPTimeout time.Duration
	// BreakerTrips is how many consecutive requests must go unanswered before the breaker opens.
	// Defaults to 5.
	BreakerTrips uint32
	// BreakerPause is how long the breaker then stays open. Defaults to 30 s.
	BreakerPause time.Duration
}

// WithDefaults replaces zero values by defaults.
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

func (c Config) newBreaker(name string) *remote.Breaker {
	return remote.NewBreaker(name, c.BreakerTrips, c.BreakerPause, isUnavailable)
}

func (c Config) validate() error {
	err := remote.CheckURL(c.BaseURL, false)
	switch {
	case c.Key == nil:
		return errors.New("stripe: the config names no key; name the secret that holds it")
	case err != nil:
		return fmt.Errorf("stripe: base URL %q: %w", c.BaseURL, err)
	case c.HTTPTimeout < 0 || c.BreakerPause < 0:
		return errors.New("stripe: a timeout is negative")
	}
	return nil
}

// elsewhere names where requests go if that is not Stripe; empty if it is.
func (c Config) elsewhere() string {
	if c.BaseURL == stripe.APIURL {
		return ""
	}
	return c.BaseURL + ", not to Stripe"
}

// service is what the actions of one world share.
type service struct {
	config        Config
	backend       stripe.Backend
	forward, back *remote.Breaker
	now           func() time.Time

	mu       sync.Mutex
	accounts map[string]string // by key
}

// New makes the world "stripe". It sends nothing: World.Journal is the first to notice a key that
// does not work.
func New(config Config) (activities.World, error) {
	s, err := newService(config)
	if err != nil {
		return activities.World{}, err
	}
	w := activities.World{Name: "stripe", Journal: s.journalID}
	if key, err := config.Key(); err == nil && isLive(key) && config.AllowLive {
		w.Notices = append(w.Notices, "the Stripe key is a live one: steps move real money")
	}
	if elsewhere := s.config.elsewhere(); elsewhere != "" {
		w.Notices = append(w.Notices, "Stripe steps go to "+elsewhere)
	}
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
		// Only the transport of stripe-go, without its retries (the workflow retries), its logger (it
		// prints bodies) and its telemetry.
		backend: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
			HTTPClient:        &http.Client{Timeout: config.HTTPTimeout},
			URL:               stripe.String(config.BaseURL),
			MaxNetworkRetries: stripe.Int64(0),
			EnableTelemetry:   stripe.Bool(false),
			LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		}),
		forward:  config.newBreaker("Stripe (forward)"),
		back:     config.newBreaker("Stripe (undo)"),
		now:      time.Now,
		accounts: map[string]string{},
	}, nil
}

// session is one call of an action, with its context, its API key and the breaker of its direction.
type session struct {
	*service
	ctx   context.Context //nolint:containedctx // a session is one call, and ends with it
	key   string
	guard *remote.Breaker
}

// openSession begins a call for an entry. It returns WrongPlace if the key belongs to another
// account than the entry's record.
func (s *service) openSession(ctx context.Context, g *remote.Breaker, journal string) (*session, error) {
	c, err := s.newSession(ctx, g)
	if err != nil {
		return nil, err
	}
	id, err := c.accountID()
	if err != nil {
		return nil, asActionError(err)
	}
	if id != journal {
		return nil, activities.Errorf(activities.WrongPlace,
			"the record is in Stripe account %s; this worker's key belongs to %s", journal, id)
	}
	return c, nil
}

func (s *service) newSession(ctx context.Context, g *remote.Breaker) (*session, error) {
	key, err := s.config.Key()
	if err != nil {
		return nil, activities.Errorf(activities.Refused, "the Stripe key: %v", err)
	}
	activities.MaskerFrom(ctx).Add(key)
	if isLive(key) && !s.config.AllowLive {
		return nil, activities.Errorf(activities.Refused,
			"the Stripe key is a live one; allow live keys by name in the worker's config, or use a test key")
	}
	return &session{service: s, ctx: ctx, key: key, guard: g}, nil
}

func isLive(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

// journalID is ACCOUNT:MODE, since the API itself holds the records.
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
	account, err := c.getObject("/v1/account")
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
