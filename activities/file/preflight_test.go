package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// What is certain to be refused is refused with the words of Apply, and without a trace in the
// root.
func TestPreflightRefusesWhatApplyWould(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("there", "x")
	require.NoError(t, os.Symlink(t.TempDir(), b.path("out")))
	before := describe(t, b.root)
	text := func(s string) map[string]any { return map[string]any{"path": b.path("there"), "content": s} }
	for _, c := range []struct {
		name, action string
		with         map[string]any
		later        []string
		checks       []activities.Check
		want         []string // parts of the refusals; none: not refused
		current      string   // the key on whose state it depends
	}{
		{name: "fine", action: "write", with: text("x")},
		{name: "outside", action: "write", with: map[string]any{"path": "/etc/x", "content": "x"},
			want: []string{`path: "/etc/x" is outside the allowed roots; this worker allows ` + b.root}},
		{
			name: "by a symlink", action: "write", with: map[string]any{"path": b.path("out/x"), "content": "x"},
			want: []string{"is outside the allowed roots: the symlink " + b.path("out") + " leads to "}, current: "file:" +
				b.path("out/x"),
		},
		{name: "content and source", action: "write",
			with: map[string]any{"path": b.path("there"), "content": "x", "source": b.path("there")},
			want: []string{"give one of content and source"}},
		{name: "mode", action: "write", with: map[string]any{"path": b.path("there"), "content": "x", "mode": "rw"},
			want: []string{`mode: "rw" is not an octal mode`}},
		{name: "no source", action: "write", with: map[string]any{"path": b.path("a"), "source": b.path("b")},
			want: []string{"does not exist"}, current: "file:" + b.path("b")},
		{
			name: "two at once", action: "write",
			with: map[string]any{"files": []any{map[string]any{"path": "/etc/x", "content": ""},
				map[string]any{"path": b.path("a"), "content": "", "mode": "9"}}},
			want: []string{`files[0].path: "/etc/x"`, `files[1].mode: "9"`},
		},
		{name: "content comes later", action: "write", with: map[string]any{"path": b.path("a")}, later: []string{"content"}},
		{name: "content comes later, outside", action: "write", with: map[string]any{"path": "/etc/x"},
			later: []string{"content"}, want: []string{"is outside"}},
		{name: "source comes later, outside", action: "write", with: map[string]any{"path": "/etc/x"},
			later: []string{"source"}, want: []string{"is outside"}},
		{name: "path comes later", action: "write", with: map[string]any{"content": "x"}, later: []string{"path"}},
		{name: "files come later", action: "write", with: map[string]any{}, later: []string{"files"}},
		{
			name: "program", action: "write", with: text("x"),
			checks: []activities.Check{{Command: &activities.CommandCheck{Run: []string{"rm"}}}},
			want: []string{
				`check[0].command: this worker does not allow "rm" in a check; checkCommands in its config allows jq`},
		},
		{name: "allowed program", action: "write", with: text("x"),
			checks: []activities.Check{{Command: &activities.CommandCheck{Run: []string{"jq"}}}}},
		{name: "delete", action: "delete", with: map[string]any{"path": b.path("there")}},
		{name: "delete what is not there", action: "delete", with: map[string]any{"paths": []string{b.path("nothing")}},
			want: []string{"paths[0]: " + b.path("nothing") + " does not exist"}, current: "file:" + b.path("nothing")},
		{name: "delete outside", action: "delete", with: map[string]any{"path": "/etc/passwd"}, want: []string{"is outside"}},
		{name: "delete later", action: "delete", with: map[string]any{}, later: []string{"path"}},
	} {
		raw, err := json.Marshal(c.with)
		require.NoError(t, err)
		refusals, err := activities.NewRegistry(b.world).Preflight(t.Context(),
			activities.Host{CheckCommands: []string{"jq"}}, "file."+c.action,
			activities.Outlook{Step: activities.Step{ID: "s", With: raw, Checks: c.checks}, Later: c.later})
		require.NoError(t, err, c.name)
		require.Len(t, refusals, len(c.want), "%s: %v", c.name, refusals)
		for i, want := range c.want {
			require.Contains(t, refusals[i].Message, want, c.name)
			require.Equal(t, c.current, refusals[i].Current, c.name)
		}
	}
	require.Equal(t, before, describe(t, b.root))
	require.NoFileExists(t, filepath.Join(b.root, ".unwind", "stage", "s"))
}
