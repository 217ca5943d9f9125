package command

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/temporalproto"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// What an agent gives to its session comes back after a crash of the agent and of its worker, and
// is in no history.
func TestTheContextOfAnAgentIsKept(t *testing.T) {
	const secret = "the password is tuna fish"
	d := newDesk(t)
	state := t.TempDir()
	restart := func() {
		d.stopWorker()
		d.startWorker(func(c *host.Config) { c.State = state })
	}
	restart()
	id := t.Name()
	write := func(content []byte) string {
		file := filepath.Join(t.TempDir(), "context")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		return file
	}
	read := func(out string) (s standing) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		return s
	}
	answer := func(out string) (a protocol.Answer) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(out), &a))
		return a
	}
	d.ok("session", "open", d.file("name: live\nsession: {}\nsteps: []\n"), "--id", id)
	require.Equal(t, standing{}, read(d.ok("session", "context", id)), "nothing is given yet")
	d.ok("session", "step", id, d.file("{uses: fake.set, with: {key: a, value: x}}"))
	first := answer(d.ok("session", "savepoint", id, "half", "--context", write([]byte(secret)), "--request", "half"))
	require.Equal(t, len(secret), first.Context.Size)
	again := answer(d.ok("session", "savepoint", id, "half", "--context", write([]byte(secret)), "--request", "half"))
	require.Equal(t, first.Context, again.Context, "a repeated request is the same one")
	d.ok("session", "step", id, d.file("{uses: fake.set, with: {key: b, value: y}}"))
	odd := []byte{0xff, 0, 1}
	d.ok("session", "keep", id, write(odd), "--name", "odd")
	d.ok("session", "step", id, d.file("{uses: fake.set, with: {key: c, value: z}}"))

	restart()
	now := read(d.ok("session", "context", id))
	require.Equal(t, []any{"odd", odd, []string{"s3"}}, []any{now.Name, now.Bytes, now.Since})
	require.Equal(t, secret, read(d.ok("session", "context", id, "--savepoint", "half")).Content)
	back := answer(d.ok("session", "rollback", id, "--to", "half"))
	require.Equal(t, first.Context.Digest, back.Context.Digest)
	out := filepath.Join(t.TempDir(), "out")
	now = read(d.ok("session", "context", id, "--file", out))
	require.Equal(t, []any{"half", "", []string(nil)}, []any{now.Name, now.Content, now.Since})
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, secret, string(content))
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	large := make([]byte, 2_000_000)
	_, err = rand.Read(large)
	require.NoError(t, err)
	refused := d.do("session", "keep", id, write(large))
	require.Equal(t, statusUsage, refused.status)
	require.Regexp(t, `context: it has \d+ bytes compressed, more than 1000000: shorten it`, refused.err)
	wordy := bytes.Repeat([]byte("say it once more. "), 200_000)
	d.ok("session", "keep", id, write(wordy))
	require.Equal(t, string(wordy), read(d.ok("session", "context", id)).Content)
	require.Equal(t, statusUsage, d.do("session", "keep", id, write(nil)).status)
	none := d.do("session", "context", id, "--savepoint", "full")
	require.Equal(t, statusUsage, none.status)
	require.Contains(t, none.err, `savepoint "full" has no context`)

	s := session.Attach(d.client, id)
	lost := first.Context
	lost.Digest = activities.Digest("sha256:" + strings.Repeat("0", 64))
	_, err = s.ReadContext(t.Context(), *lost)
	require.ErrorContains(t, err, "has no context")
	for _, workflow := range []string{id, "contexts-" + d.queue} {
		history := d.client.GetWorkflowHistory(t.Context(), workflow, "", false, 0)
		for history.HasNext() {
			event, err := history.Next()
			require.NoError(t, err)
			raw, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(event)
			require.NoError(t, err)
			require.NotContains(t, string(raw), secret)
		}
	}
	found := 0
	require.NoError(t,
		filepath.WalkDir(filepath.Join(state, "contexts"), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				info, err := e.Info()
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
				found++
			}
			return err
		}))
	require.Greater(t, found, 3)
	d.ok("session", "finish", id)
}
