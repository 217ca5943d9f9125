package container_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// front is an engine before which a test stands: hook sees each request, and may answer in the
// engine's place.
type front struct {
	address string
	hook    atomic.Pointer[func(w http.ResponseWriter, r *http.Request) (answered bool)]
}

func newFront(t testing.TB) *front {
	t.Helper()
	containertest.Docker(t)
	at, err := url.Parse(client.DefaultDockerHost)
	require.NoError(t, err)
	if host := os.Getenv(client.EnvOverrideHost); host != "" {
		at, err = url.Parse(host)
		require.NoError(t, err)
	}
	network, address := at.Scheme, at.Host
	if network == "unix" {
		address = at.Path
	}
	through := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
		FlushInterval: -1,
	}
	f := &front{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hook := f.hook.Load(); hook != nil && (*hook)(w, r) {
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.address = "tcp://" + server.Listener.Addr().String()
	return f
}

// beforeCommit sets what happens before a commit; nil: nothing.
func (f *front) beforeCommit(do func(w http.ResponseWriter) (answered bool)) {
	if do == nil {
		f.hook.Store(nil)
		return
	}
	hook := func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/commit") && do(w)
	}
	f.hook.Store(&hook)
}

// before sets what happens before each request of a method for a path.
func (f *front) before(method, part string, do func(*http.Request)) {
	hook := func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == method && strings.Contains(r.URL.Path, part) {
			do(r)
		}
		return false
	}
	f.hook.Store(&hook)
}

// full answers as an engine does whose disk is full.
func full(w http.ResponseWriter) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(
		[]byte(`{"message":"Error processing tar file(exit status 1): write /srv/big: no space left on device"}`))
	return true
}

func frontStage(t testing.TB, f *front) *stage {
	t.Helper()
	return newStageAt(t, container.Config{State: t.TempDir(), Host: f.address, Layers: container.LayersNever})
}

func TestFullDiskOfTheEngineIsSaidAndWaitedFor(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	f, b := newFront(t), containertest.Start(t)
	s, before := frontStage(t, f), containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a"})

	f.beforeCommit(full)
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.ErrorContains(t, err, "the container engine's disk is full")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again")
	require.Equal(t, before, containertest.Files(t, b), "no command without a checkpoint")
	f.beforeCommit(nil)
	_, err = s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	left := containertest.Files(t, b)

	f.beforeCommit(full)
	_, err = s.action.Undo(t.Context(), e, redoable)
	require.ErrorContains(t, err, "the container engine's disk is full")
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err))
	require.Equal(t, left, containertest.Files(t, b), "nothing is taken away that is not kept")
	require.Equal(t, b.ID, b.Inspect(t).ID)
	assert.Empty(t, containertest.Left(t, e.Token))
	f.beforeCommit(nil)
	mustUndo(t, s, e, redoable)
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Len(t, containertest.Kept(t, e.Token), 1)
}

func TestWhatChangesWhileItIsKeptIsNotPutBackAsIfItWereExact(t *testing.T) {
	t.Parallel()
	testrun.Sampled(t)
	f, b := newFront(t), containertest.Start(t)
	s, before := frontStage(t, f), containertest.Files(t, b)
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo two >/srv/a"})
	_, err := s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	f.beforeCommit(func(http.ResponseWriter) bool {
		b.Run(t, "echo late >/srv/late")
		return false
	})
	mustUndo(t, s, e, redoable)
	f.beforeCommit(nil)
	stands, next := b.Inspect(t).ID, s.again(t, e)
	_, err = s.action.Apply(t.Context(), next, with, "")
	require.ErrorContains(t, err, "+ /srv/late")
	assert.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	assert.Equal(t, stands, b.Inspect(t).ID)
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Empty(t, containertest.Left(t, next.Token))
	u, err := s.action.Undo(t.Context(), next, activities.Decision{})
	require.NoError(t, err)
	assert.True(t, u.Outcome.Clean(), "%+v", u)
	assert.Equal(t, before, containertest.Files(t, b))
}
