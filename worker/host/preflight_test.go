package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A task with steps that cannot work is refused as a whole, with every reason, before the first
// step acts; validating and planning it say the same.
func TestATaskThatCannotWorkTouchesNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "out")))
	s := serve(t, host.Config{
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{root}}}, CheckCommands: []string{"jq"},
		Secrets: map[string]string{"UNSET": "env:UNWIND_TEST_UNSET"},
	}, host.Options{})
	in := func(name string) string { return filepath.Join(root, name) }
	write := func(id string, with map[string]any, check ...any) map[string]any {
		return map[string]any{"id": id, "uses": "file.write", "with": with, "check": append([]any{}, check...)}
	}
	document := map[string]any{"name": "release", "steps": []any{
		write("fine", map[string]any{"path": in("a"), "content": "x"}),
		write("outside", map[string]any{"path": "/etc/unwind-test", "content": "${{ steps.fine.outputs.sha256 }}"}),
		write("link", map[string]any{"path": in("out/x"), "content": "x"}),
		write("secret", map[string]any{"path": in("b"), "content": "${{ secrets.UNSET }}"},
			map[string]any{"command": []string{"rm", "{path}"}}),
		write("program", map[string]any{"path": in("c"), "content": "x"},
			map[string]any{"command": []string{"rm", "{path}"}}),
		write("made", map[string]any{"path": in("d"), "source": in("a")}),
		write("nothing", map[string]any{"path": in("e"), "source": in("z")}),
		write("later", map[string]any{"path": "${{ steps.fine.outputs.path }}", "content": "x"}),
	}}
	const program = `check[0].command: this worker does not allow "rm" in a check; checkCommands in its config allows jq`
	want := map[string]string{
		"outside": fmt.Sprintf(`path: "/etc/unwind-test" is outside the allowed roots; this worker allows %s`, root),
		"link": fmt.Sprintf(`path: %q is outside the allowed roots: the symlink %s leads to /etc/x; this worker allows %s`,
			in("out/x"), in("out"), root),
		"secret":  "secrets.UNSET: the worker's environment has no UNWIND_TEST_UNSET\n" + program,
		"program": program,
		"nothing": fmt.Sprintf("source: %s does not exist", in("z")),
	}

	_, err := s.end(s.start(document))
	require.ErrorContains(t, err, "nothing was touched: Refused: steps.outside: ")
	for step, messages := range want {
		for message := range strings.SplitSeq(messages, "\n") {
			require.ErrorContains(t, err, fmt.Sprintf("steps.%s: %s", step, message))
		}
	}
	require.Equal(t, len(want), strings.Count(err.Error(), "\nsteps."), "%v", err)

	v := call[protocol.Validation](s, protocol.ValidateTaskType, document)
	refused := map[string]string{}
	for _, r := range v.Refusals {
		refused[r.Step] = strings.TrimPrefix(refused[r.Step]+"\n"+r.Message, "\n")
	}
	require.Equal(t, want, refused)
	require.Equal(t, []string{"outside", "later"}, v.Later)

	refused = map[string]string{}
	for _, p := range call[protocol.Plan](s, protocol.PlanTaskType, document).Steps {
		if p.Refused != "" {
			refused[p.ID] = p.Refused
		}
	}
	require.Equal(t, want, refused)

	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{".unwind", "out"}, names)
}
