package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// Steps that call one thing by two names run one after the other although their task says that they need nothing, and their undos do not
// take each other for somebody else.
func TestStepsOnOneThingAreOrderedWhateverTheyCallIt(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	root, link := filepath.Join(base, "root"), filepath.Join(base, "link")
	in := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.MkdirAll(in("folder"), 0o700))
	require.NoError(t, os.Symlink(root, link))
	require.NoError(t, os.Symlink("folder", in("alias")))
	for _, name := range []string{"file", "linked", "hard", "source"} {
		require.NoError(t, os.WriteFile(in(name), []byte("before "+name), 0o600))
	}
	require.NoError(t, os.Symlink("linked", in("pointer")))
	require.NoError(t, os.Link(in("hard"), in("harder")))
	s := serve(t, host.Config{File: &host.FileConfig{Roots: []string{link}}}, host.Options{})

	write := func(id, path string) map[string]any {
		return map[string]any{"id": id, "uses": "file.write", "needs": []string{}, "with": map[string]any{"path": path, "content": id}}
	}
	pairs := [][2]string{{"file", "through_root"}, {"made", "through_folder"}, {"linked", "through_link"}, {"hard", "harder"}, {"source", "reader"}}
	steps := []any{
		write("file", in("file")), write("through_root", filepath.Join(link, "file")),
		write("made", in("folder/new")), write("through_folder", in("alias/new")),
		write("linked", in("linked")), write("through_link", in("pointer")),
		write("hard", in("hard")), write("harder", in("harder")),
		write("source", in("source")),
		map[string]any{"id": "reader", "uses": "file.write", "needs": []string{}, "with": map[string]any{"path": in("copy"), "source": in("source")}},
		write("apart", in("apart")),
		map[string]any{
			"id": "fails", "uses": "file.write", "with": map[string]any{"path": in("bad.json"), "content": "{"},
			"check": []any{map[string]any{"json": map[string]any{}}},
		},
	}
	run := s.start(map[string]any{"name": "names", "steps": steps})
	_, err = s.end(run)
	require.ErrorContains(t, err, "fails")

	needs := s.needs(run)
	for _, pair := range pairs {
		assert.Equal(t, []string{pair[0]}, needs[pair[1]], "%v", pair)
	}
	assert.Empty(t, needs["apart"])
	for _, name := range []string{"file", "linked", "hard", "source"} {
		content, err := os.ReadFile(in(name))
		require.NoError(t, err)
		assert.Equal(t, "before "+name, string(content))
	}
	assert.NoFileExists(t, in("folder/new"))
	assert.NoFileExists(t, in("copy"))
}

// needs returns what each step that was begun needs, by its entry in the history.
func (s *stage) needs(run client.WorkflowRun) map[string][]string {
	needs := map[string][]string{}
	events := s.Client.GetWorkflowHistory(s.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(s, err)
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if scheduled == nil || len(scheduled.GetInput().GetPayloads()) == 0 {
			continue
		}
		var forward activities.Forward
		if json.Unmarshal(scheduled.GetInput().GetPayloads()[0].GetData(), &forward) == nil && forward.Entry.Action == scheduled.GetActivityType().GetName() {
			needs[forward.Entry.Step] = forward.Entry.Needs
		}
	}
	return needs
}
