package layers_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// withoutSidecars is the address of the engine at hand, with a rule of its administrator's before
// it: no container has the host's processes.
func withoutSidecars(t *testing.T) string {
	t.Helper()
	engine := containertest.Docker(t)
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport:     engine.HTTPClient().Transport,
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			raw, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			if bytes.Contains(raw, []byte(`"PidMode":"host"`)) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				assert.NoError(t,
					json.NewEncoder(w).Encode(map[string]string{"message": "the rule of the house: no host processes"}))
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(raw))
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "tcp://" + server.Listener.Addr().String()
}

func TestAnEngineThatRefusesSidecarsTakesDockerCommit(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	b := containertest.Start(t)
	b.Put(t, "/srv", map[string]string{"a": "one\n"})
	before := containertest.Files(t, b)
	state := t.TempDir()
	w := world(t, state, func(c *container.Config) {
		c.Host = withoutSidecars(t)
	})
	e, err := newEntry(t.Context(), w)
	require.NoError(t, err)
	t.Cleanup(func() { containertest.Clear(t, e.Token) })
	with, err := json.Marshal(map[string]any{"container": b.Name, "command": "echo two >/srv/a"})
	require.NoError(t, err)
	s := activities.Step{ID: "it", With: with}
	const why = "by docker commit, not by a layer: the sidecar on the engine: making it: "
	plan, err := w.Actions[0].Plan(t.Context(), e, s)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(plan.Facts, "\n"), why)
	assert.Contains(t, strings.Join(plan.Facts, "\n"), "the rule of the house")
	_, err = w.Actions[0].Apply(t.Context(), e, s, plan.Digest)
	require.NoError(t, err)
	undone, err := w.Actions[0].Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, undone.Outcome)
	assert.Contains(t, undone.Observed, why)
	assert.Equal(t, before, containertest.Files(t, b))
	assert.Empty(t, containertest.Sidecars(t, b.Client, homeOf(t, state)))
}

func TestAWorkerThatRequiresLayersDoesNotStartWithoutThem(t *testing.T) {
	containertest.Docker(t)
	refusing, absent := withoutSidecars(t), "tcp://127.0.0.1:1"
	for mode, c := range map[container.LayersMode][]string{
		container.LayersRequire: {refusing, absent}, container.LayersAuto: {refusing, absent},
		container.LayersNever: {refusing, absent}, "": {refusing, absent},
	} {
		for _, address := range c {
			w, err := container.New(container.Config{State: t.TempDir(), Host: address, Layers: mode})
			require.NoError(t, err)
			err = w.Prepare(t.Context())
			if mode != container.LayersRequire {
				require.NoError(t, err, "%q, %s", mode, address)
				continue
			}
			require.ErrorContains(t, err, "container.layers: require: layers do not work here: ")
			require.ErrorContains(t, err,
				map[string]string{refusing: "the rule of the house: no host processes",
					absent: "Cannot connect to the Docker daemon"}[address])
			require.ErrorContains(t, err, "or write layers: auto, and docker commit is used")
		}
	}
}

func TestAContainerWithoutLayersIsRefusedWhereTheyAreRequired(t *testing.T) {
	testrun.NeedRoot(t, "layers over containers")
	b := containertest.Start(t, func(_ *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
		h.CapAdd = []string{"SYS_ADMIN"}
	})
	state := t.TempDir()
	w := world(t, state, func(c *container.Config) { c.Layers = container.LayersRequire })
	e, err := newEntry(t.Context(), w)
	require.NoError(t, err)
	with, err := json.Marshal(map[string]any{"container": b.Name, "command": "touch /x"})
	require.NoError(t, err)
	for _, act := range []func() error{
		func() error {
			_, err := w.Actions[0].Plan(t.Context(), e, activities.Step{ID: "it", With: with})
			return err
		},
		func() error {
			_, err := w.Actions[0].Apply(t.Context(), e, activities.Step{ID: "it", With: with}, "")
			return err
		},
	} {
		err := act()
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, "run it without --privileged and SYS_ADMIN; or write layers: auto")
	}
	assert.False(t, b.Has(t, "/x"))
}
