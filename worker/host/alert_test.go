package host_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// told is what became of telling an alert.
type told struct {
	Error string
	Type  string
}

func tellAlert(ctx workflow.Context, a []protocol.Alert) (told, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumInterval: 10 * time.Millisecond,
			MaximumAttempts: 4},
	})
	err := workflow.ExecuteActivity(ctx, protocol.AlertActivity, a).Get(ctx, nil)
	if err == nil {
		return told{}, nil
	}
	if typed, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return told{typed.Error(), typed.Type()}, nil
	}
	return told{Error: err.Error()}, nil
}

// pager is a webhook that answers with these statuses, one after the other, and from then on with
// the last.
type pager struct {
	*httptest.Server
	got chan []protocol.Alert
}

func newPager(t *testing.T, statuses ...int) *pager {
	p := &pager{got: make(chan []protocol.Alert, 100)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a []protocol.Alert
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &a) != nil || r.Method != http.MethodPost ||
			r.Header.Get("X-Key") != "a-secret-key" ||
			r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		p.got <- a
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(statuses[min(len(p.got), len(statuses))-1])
	}))
	t.Cleanup(p.Close)
	return p
}

var parked = []protocol.Alert{{
	Task: "release", Run: "r", Step: "two", Action: "file.write", State: compensations.Parked, Reason: "it has drifted",
	Digest: "sha256:1", At: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
}}

func alerting(t *testing.T, url string) *stage {
	t.Setenv("PAGER_KEY", "a-secret-key")
	c := host.Config{Secrets: map[string]string{"KEY": "env:PAGER_KEY"}}
	if url != "" {
		c.Webhook = &host.WebhookConfig{URL: url + "/hook/its-key", Header: "X-Key", Secret: "KEY"}
	}
	m := host.NewMetrics()
	t.Cleanup(m.Close)
	c.Listen = "127.0.0.1:0"
	return serve(t, c, host.Options{Metrics: m, Register: func(r worker.Registry) {
		r.RegisterWorkflowWithOptions(tellAlert, workflow.RegisterOptions{Name: "tell"})
	}})
}

func TestAnAlertIsToldAgainUntilItIsTaken(t *testing.T) {
	p := newPager(t, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusNoContent)
	s := alerting(t, p.URL)
	require.Equal(t, told{}, call[told](s, "tell", parked))
	require.Len(t, p.got, 3)
	for range 3 {
		require.Equal(t, parked, <-p.got)
	}
	require.Eventually(t, func() bool { return once.MatchString(s.metrics()) }, waitFor, tick, "it is counted once")
}

// once is how the metrics tell of one alert.
var once = regexp.MustCompile(`(?m)^unwind_alerts(_total)?\{[^}]*state="parked"[^}]*\} 1$`)

// No status is final: a key is renewed, a redirect goes away. What stays refused says so, without
// the key.
func TestWhatAWebhookRefusesIsToldAgain(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			p := newPager(t, status, http.StatusNoContent)
			require.Equal(t, told{}, call[told](alerting(t, p.URL), "tell", parked))
			require.Len(t, p.got, 2)
		})
	}
	p := newPager(t, http.StatusUnauthorized)
	end := call[told](alerting(t, p.URL), "tell", parked)
	require.NotEqual(t, "Refused", end.Type, "it was tried until the attempts were used up")
	require.Contains(t, end.Error, "the webhook at "+strings.TrimPrefix(p.URL, "http://")+" answered 401")
	require.NotContains(t, end.Error, "its-key")
}

func TestAWebhookThatIsGoneIsTriedAgainAndItsKeyIsToldNowhere(t *testing.T) {
	p := newPager(t, http.StatusOK)
	p.Close()
	end := call[told](alerting(t, p.URL), "tell", parked)
	require.Contains(t, end.Error, "did not answer")
	require.NotContains(t, end.Error, "its-key")
	require.NotEqual(t, "Refused", end.Type, "it was tried until the attempts were used up")
}

func TestWithoutAWebhookAnAlertIsCountedOnly(t *testing.T) {
	s := alerting(t, "")
	require.Equal(t, told{}, call[told](s, "tell", parked))
	require.Eventually(t, func() bool { return once.MatchString(s.metrics()) }, waitFor, tick)
}
