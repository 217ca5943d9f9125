package container_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// serveAt serves an engine's address until it is closed, with all connections to it.
func serveAt(t *testing.T, socket string, h http.Handler) *http.Server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	return s
}

// watched serves the engine of the tests at a socket of its own, and tells of each request.
func watched(t *testing.T, see func(r *http.Request)) (socket string, s *http.Server) {
	t.Helper()
	c := containertest.Docker(t)
	socket = filepath.Join(t.TempDir(), "s")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return c.Dialer()(ctx)
	}}
	return socket, serveAt(t, socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		see(r)
		proxy.ServeHTTP(w, r)
	}))
}

func TestAnotherEngineBehindTheSameAddressIsNoticed(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	var asked atomic.Int64
	socket, first := watched(t, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info") {
			asked.Add(1)
		}
	})
	b := containertest.Start(t)
	s := newStageAt(t, container.Config{State: t.TempDir(), Host: "unix://" + socket, Layers: container.LayersNever})
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "cat /bin/absent"})
	for range 3 {
		_, err := s.action.Plan(t.Context(), e, with)
		require.NoError(t, err)
		_, err = s.action.Observe(t.Context(), e)
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, asked.Load(), int64(3), "what the engine has said is remembered")

	require.NoError(t, first.Close())
	serveAt(t, socket, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		fmt.Fprint(w, `{"ID": "another"}`)
	}))
	_, err := s.action.Undo(t.Context(), e, activities.Decision{})
	assert.Equal(t, activities.WrongPlace, activities.TypeOf(err))
	require.ErrorContains(t, err, "this worker's engine is another")
}
