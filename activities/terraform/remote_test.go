package terraform

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// stateServer is a remote backend (http) in memory.
type stateServer struct {
	mu    sync.Mutex
	state []byte
	lock  []byte
}

func (s *stateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	switch r.Method {
	case http.MethodGet:
		if s.state == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(s.state)
	case http.MethodPost:
		s.state = body
	case "LOCK":
		if s.lock != nil {
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(s.lock)
			return
		}
		s.lock = body
	case "UNLOCK":
		s.lock = nil
	}
}

func (s *stateServer) locked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock != nil
}

// ids are the ids in the state, by address.
func (s *stateServer) ids(t *testing.T) map[string]string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return idsIn(t, s.state)
}

// remote makes a configuration with a remote backend whose address only the step tells.
func remote(t *testing.T, resources string) (*bench, *stateServer, Params) {
	t.Helper()
	server := &stateServer{}
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	b := newBench(t, "")
	write(t, b.dir, "conf/main.tf", things(b.dir, resources+"\nterraform {\n  backend \"http\" {}\n}"))
	b.open()
	return b, server, Params{Backend: map[string]string{
		"address": h.URL, "lock_address": h.URL, "unlock_address": h.URL, "retry_max": "0",
	}}
}

func TestRemoteBackend(t *testing.T) {
	b, server, p := remote(t, `resource "fake_thing" "a" { name = "a" }`)
	e, s := b.step(p)
	change, err := b.action.Plan(b.ctx, e, s)
	require.NoError(t, err)
	_, err = b.action.Apply(b.ctx, e, s, change.Digest)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
	assert.NoFileExists(t, b.state())
	b.configure(`
resource "fake_thing" "a" { name = "a" }
resource "fake_thing" "b" { name = "b" }
terraform {
  backend "http" {}
}`)
	assert.Equal(t, activities.Restored, b.undo(b.apply(p)).Outcome)
	assert.Equal(t, map[string]int{"a": 1}, b.names())
	u := b.undo(e)
	if u.Outcome == activities.Drifted { // the serial has moved on, the contents have not
		t.Fatalf("drift where there is none: %s", u.Drift.Diff)
	}
	assert.Equal(t, activities.Restored, u.Outcome)
	assert.Empty(t, b.names())
	assert.False(t, server.locked())
}

// What an import, a move and a forgetting have done to a remote state is undone in it, with the
// ids.
func TestARemoteStateIsPutBack(t *testing.T) {
	const backend = "terraform {\n  backend \"http\" {}\n}\n"
	for _, c := range []struct{ name, after string }{
		{"import", thingA + thingX + importX},
		{"moved", "resource \"fake_thing\" \"b\" { name = \"a\" }\nmoved {\n  from = fake_thing.a\n  to = fake_thing.b\n}\n"},
		{"removed", forgetA},
		{"all", "resource \"fake_thing\" \"y\" { name = \"x\" }\n" +
			strings.ReplaceAll(importX, "fake_thing.x", "fake_thing.y") + forgetA},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, server, p := remote(t, thingA)
			b.apply(p)
			b.makeOutside("beef", "x", "")
			files, ids := b.files(), server.ids(t)
			require.Len(t, ids, 1)
			b.configure(c.after + backend)
			e, _ := b.do(p)
			require.NotEqual(t, ids, server.ids(t))
			u := b.undo(e)
			assert.Equal(t, activities.Restored, u.Outcome, "%v", u.Losses)
			assert.Equal(t, ids, server.ids(t))
			assert.Equal(t, files, b.files())
			assert.False(t, server.locked())
			assert.NoFileExists(t, b.state())
		})
	}
}

// A killed terraform leaves a remote lock. This backend does not tell whose it is, so a person must
// remove it.
func TestRemoteLockOfUnknownHolder(t *testing.T) {
	b, server, p := remote(t, slow)
	config := b.config()
	config.LockTimeout = time.Millisecond
	w, err := New(config)
	require.NoError(t, err)
	b.action = w.Actions[0]
	e, s := b.step(p)
	c := b.worker(e, s)
	b.eventually("an object in flight", func() bool { return b.names()["slow"] == 1 })
	b.killRun(e)
	require.Error(t, c.Wait())
	require.True(t, server.locked())

	_, err = b.action.Undo(b.ctx, e, activities.Decision{})
	require.Error(t, err)
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "terraform force-unlock ")
	assert.True(t, server.locked(), "nobody else's lock is taken away")

	server.mu.Lock()
	server.lock = nil
	server.mu.Unlock()
	assert.Equal(t, activities.Unknown, b.undo(e).Outcome)
	assert.Equal(t, map[string]int{"slow": 1}, b.names())
}

// A local backend may keep its state in a place of its own; an undo leaves nothing there.
func TestLocalBackendWithAPath(t *testing.T) {
	b := newBench(t, fmt.Sprintf(`
resource "fake_thing" "a" { name = "a" }
terraform {
  backend "local" { path = %q }
}`, "../elsewhere/terraform.tfstate"))
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "elsewhere"), 0o700))
	e := b.apply(Params{})
	elsewhere := filepath.Join(b.dir, "elsewhere", "terraform.tfstate")
	assert.FileExists(t, elsewhere)
	assert.NoFileExists(t, b.state())
	assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	assert.NoFileExists(t, elsewhere)
}
