package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/uber-go/tally/v4"
	tallyprom "github.com/uber-go/tally/v4/prometheus"
	"go.temporal.io/sdk/client"
	sdktally "go.temporal.io/sdk/contrib/tally"
)

// Metrics collects the counters of the Temporal SDK and the engine for Prometheus.
type Metrics struct {
	Handler  client.MetricsHandler
	registry *prometheus.Registry
	stop     io.Closer
}

// NewMetrics makes a collector; several workers in one process do not share one. Close it after the
// client and the worker that report to it.
func NewMetrics() *Metrics {
	registry := prometheus.NewRegistry()
	// tally's Configuration would serve every reporter on the process's default mux.
	reporter := tallyprom.NewReporter(tallyprom.Options{
		Registerer: registry, DefaultTimerType: tallyprom.HistogramTimerType,
		OnRegisterError: func(error) {}, // a clashing metric is left out, and does not end the worker
	})
	scope, closer := tally.NewRootScope(tally.ScopeOptions{
		CachedReporter: reporter, Separator: tallyprom.DefaultSeparator, SanitizeOptions: &sdktally.PrometheusSanitizeOptions,
	}, time.Second)
	return &Metrics{
		Handler:  sdktally.NewMetricsHandler(sdktally.NewPrometheusNamingScope(scope)),
		registry: registry,
		stop:     closer,
	}
}

// Close stops collecting.
func (m *Metrics) Close() { _ = m.stop.Close() }

// serve serves /metrics, and /healthz with status 200 while the Temporal server answers this
// worker.
func (m *Metrics) serve(listen string, c client.Client, namespace, host string) (address string, stop func(),
	err error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w; give another address, or none", err)
	}
	if err := m.registry.Register(waiting{c, namespace}); err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		health := map[string]string{"host": host, "status": "ok"}
		if _, err := c.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
			health["status"] = "the Temporal server does not answer"
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(health)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	stop = func() {
		_ = server.Close()
		m.registry.Unregister(waiting{})
	}
	return l.Addr().String(), stop, nil
}
