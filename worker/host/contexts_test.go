package host_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

func (s *stage) openSession(id string) session.Session {
	s.Helper()
	opened, _, err := session.Open(s.Context(), s.Client, session.Options{ID: id, Queue: s.Name()},
		json.RawMessage(`{"name": "talk", "session": {}, "steps": []}`))
	require.NoError(s, err)
	return opened
}

// keptContexts is the number of sessions that have contexts on the host.
func (s *stage) keptContexts() int {
	tokens, err := os.ReadDir(filepath.Join(s.state, "contexts", "tokens"))
	require.NoError(s, err)
	return len(tokens)
}

func TestContextsAreReleasedWhenTheirSessionIsOver(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	goes, dies := s.openSession(t.Name()+"-goes"), s.openSession(t.Name()+"-dies")
	a, err := goes.KeepContext(t.Context(), "", "one", []byte("what it knows"))
	require.NoError(t, err)
	_, err = dies.KeepContext(t.Context(), "", "one", []byte("what it knows"))
	require.NoError(t, err)
	require.Equal(t, 2, s.keptContexts())
	require.Empty(t, s.retain().Problems)
	require.Equal(t, 2, s.keptContexts(), "both are open")

	_, err = goes.Finish(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, s.Client.TerminateWorkflow(t.Context(), dies.ID(), "", "lost"))
	content, err := goes.ReadContext(t.Context(), *a.Context)
	require.NoError(t, err)
	require.Equal(t, "what it knows", string(content))
	require.Empty(t, s.retain().Problems)
	require.Equal(t, 1, s.keptContexts(), "one that is dead is not over before it is recovered")
	_, err = goes.ReadContext(t.Context(), *a.Context)
	require.ErrorContains(t, err, "it was released after the session's end, or never given")

	dead, err := s.Find(t.Context(), dies.ID())
	require.NoError(t, err)
	recovering, err := s.Recover(t.Context(), dead, "ann")
	require.NoError(t, err)
	s.report(recovering.WorkflowID)
	require.Eventually(t, func() bool { s.retain(); return s.keptContexts() == 0 }, waitFor, tick, "it is recovered")
}

// What is damaged on the disk, or was never there, is not taken for what the agent has given.
func TestAContextThatIsDamagedIsNotRead(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	of := s.openSession(t.Name())
	a, err := of.KeepContext(t.Context(), "", "", []byte("what it knows"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(s.state, "contexts", "tokens", "*",
		string(a.Context.Digest[len("sha256:"):])))
	require.NoError(t, err)
	require.Len(t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	raw[len(raw)-5] ^= 1
	require.NoError(t, os.WriteFile(files[0], raw, 0o600))
	_, err = of.ReadContext(t.Context(), *a.Context)
	require.Error(t, err)
	require.NoError(t, os.Remove(files[0]))
	_, err = of.ReadContext(t.Context(), *a.Context)
	require.ErrorContains(t, err, "has no context")
	for _, digest := range []activities.Digest{"owner", "../owner", "sha256:../../id", ""} {
		_, err = of.ReadContext(t.Context(), protocol.Context{Digest: digest, Queue: a.Context.Queue, Host: a.Context.Host})
		require.Error(t, err, digest)
	}
	_, err = of.Abort(t.Context(), "", protocol.AbortRequest{})
	require.NoError(t, err)
}

// A session remembers the last 20 contexts besides those of its savepoints. What it has forgotten
// is removed with the next one.
func TestContextsThatASessionKnowsNoMoreAreRemoved(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	talk := s.openSession(t.Name())
	marked, err := talk.SavepointWith(t.Context(), "", "start", []byte("at the start"))
	require.NoError(t, err)
	var given []protocol.Context
	for i := range 23 {
		a, err := talk.KeepContext(t.Context(), "", "one", fmt.Appendf(nil, "thought %d", i))
		require.NoError(t, err)
		given = append(given, *a.Context)
	}
	for i, c := range given {
		content, err := talk.ReadContext(t.Context(), c)
		if i < 2 {
			require.ErrorContains(t, err, "has no context", i)
			continue
		}
		require.NoError(t, err, i)
		require.Equal(t, fmt.Sprintf("thought %d", i), string(content))
	}
	_, err = talk.ReadContext(t.Context(), *marked.Context)
	require.NoError(t, err, "a savepoint has its own")
	again, err := talk.KeepContext(t.Context(), "", "one", []byte("thought 0"))
	require.NoError(t, err)
	_, err = talk.ReadContext(t.Context(), *again.Context)
	require.NoError(t, err, "it was given again")
}

func TestContextsThatNoSessionHasAdmittedAreBounded(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	opened := s.openSession(t.Name())
	_, err := opened.KeepContext(t.Context(), "", "one", []byte("what it knows"))
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(s.state, "contexts", "tokens", "*"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	for n := range 10_000 {
		require.NoError(t, os.WriteFile(filepath.Join(kept[0], fmt.Sprintf("%064x", n)), nil, 0o600))
	}
	_, err = opened.KeepContext(t.Context(), "", "two", []byte("what it knows now"))
	require.ErrorContains(t, err, "it takes no more")
}
