package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// Steps that call one thing by two names run one after the other although their task says that they
// need nothing, and their undos do not take each other for somebody else.
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
	s := serve(t, host.Config{Worlds: []activities.Settings{&file.Settings{Roots: []string{link}}}}, host.Options{})

	write := func(id, path string) map[string]any {
		return map[string]any{"id": id, "uses": "file.write", "needs": []string{},
			"with": map[string]any{"path": path, "content": id}}
	}
	pairs := [][2]string{{"file", "through_root"}, {"made", "through_folder"}, {"linked", "through_link"},
		{"hard", "harder"}, {"source", "reader"}}
	steps := []any{
		write("file", in("file")), write("through_root", filepath.Join(link, "file")),
		write("made", in("folder/new")), write("through_folder", in("alias/new")),
		write("linked", in("linked")), write("through_link", in("pointer")),
		write("hard", in("hard")), write("harder", in("harder")),
		write("source", in("source")),
		map[string]any{"id": "reader", "uses": "file.write", "needs": []string{},
			"with": map[string]any{"path": in("copy"), "source": in("source")}},
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
	for step, e := range s.entries(run.GetID()) {
		needs[step] = e.Needs
	}
	return needs
}

// entries returns the entry of each step that was begun, by the history of the last run of a
// workflow.
func (s *stage) entries(id string) map[string]activities.Entry {
	entries := map[string]activities.Entry{}
	for _, scheduled := range s.scheduled(id) {
		var forward activities.Forward
		if payloads := scheduled.GetInput().GetPayloads(); len(payloads) > 0 &&
			json.Unmarshal(payloads[0].GetData(), &forward) == nil &&
			forward.Entry.Action == scheduled.GetActivityType().GetName() {
			entries[forward.Entry.Step] = forward.Entry
		}
	}
	return entries
}

// scheduled returns the activities that the last run of a workflow has scheduled.
func (s *stage) scheduled(id string) (all []*historypb.ActivityTaskScheduledEventAttributes) {
	events := s.Client.GetWorkflowHistory(s.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(s, err)
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			all = append(all, scheduled)
		}
	}
	return all
}

// Steps of a session, of a redo, and steps whose path another step returns, are named as those of a
// task file are.
func TestStepsThatComeLaterAreOrderedWhateverTheyCallIt(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.Mkdir(in("folder"), 0o700))
	require.NoError(t, os.Symlink("folder", in("alias")))
	s := serve(t, host.Config{Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}}}, host.Options{})
	write := func(id, path string) map[string]any {
		return map[string]any{"id": id, "uses": "file.write", "needs": []string{},
			"with": map[string]any{"path": path, "content": id}}
	}

	t.Run("session", func(t *testing.T) {
		live, _, err := session.Open(t.Context(), s.Client, session.Options{ID: s.Name() + "-session", Queue: s.Name()},
			json.RawMessage(`{"name": "live", "session": {}, "steps": []}`))
		require.NoError(t, err)
		for i, request := range [][]any{{write("one", in("folder/s")), write("two", in("alias/s"))},
			{write("three", in("alias/../folder/s"))}} {
			var steps []json.RawMessage
			for _, step := range request {
				raw, err := json.Marshal(step)
				require.NoError(t, err)
				steps = append(steps, raw)
			}
			answer, err := live.Step(t.Context(), string(rune('1'+i)), steps...)
			require.NoError(t, err)
			require.Empty(t, answer.Waiting)
		}
		entries := s.entries(live.ID())
		require.Equal(t, []string{"one"}, entries["two"].Needs)
		require.Contains(t, entries["three"].Needs, "two")
		for _, scheduled := range s.scheduled(live.ID()) {
			require.NotEqual(t, protocol.PreflightActivity, scheduled.GetActivityType().GetName(),
				"the compiler's own host names what it runs")
		}
		_, err = live.Abort(t.Context(), "end", protocol.AbortRequest{})
		require.NoError(t, err)
		require.NoFileExists(t, in("folder/s"))
	})

	t.Run("a path that a step returns", func(t *testing.T) {
		later := write("later", "${{ steps.first.outputs.path }}")
		source := map[string]any{"id": "source", "uses": "file.write", "needs": []string{}, "with": map[string]any{
			"path": in("copy"), "source": "${{ steps.first.outputs.path }}",
		}}
		run := s.start(map[string]any{"name": "late", "steps": []any{
			write("first", in("alias/l")), later, source, write("last", in("folder/l")),
			map[string]any{
				"id": "fails", "uses": "file.write", "with": map[string]any{"path": in("bad.json"), "content": "{"},
				"check": []any{map[string]any{"json": map[string]any{}}},
			},
		}})
		s.unwinds(t, run)
		entries := s.entries(run.GetID())
		require.Equal(t, []string{"file:" + in("alias/l")}, entries["later"].Keys)
		require.Equal(t, []string{"file:" + in("folder/l")}, entries["later"].Changes)
		require.Equal(t, []string{"file:" + in("copy")}, entries["source"].Keys)
		require.Equal(t, []string{"file:" + in("folder/l")}, entries["source"].Reads)
		require.Equal(t, []string{"later"}, entries["source"].Needs)
		require.Equal(t, []string{"source"}, entries["last"].Needs)
		looks := 0
		for _, scheduled := range s.scheduled(run.GetID()) {
			if scheduled.GetActivityType().GetName() == protocol.PreflightActivity {
				looks++
			}
		}
		require.Equal(t, 3, looks, "one for the task, and one for each step with a path that another returns")
		require.NoFileExists(t, in("folder/l"))
	})
}
