package host_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/worker/notices"
)

func TestATaskGetsNoSecretOfTheWorkersOwnAndASecretIsMaskedInEveryCall(t *testing.T) {
	const own, tasks, limited = "sk_test_0123456789", "task-secret-0123", "other-secret-0123"
	t.Setenv("OWN", own)
	t.Setenv("TASKS", tasks)
	t.Setenv("LIMITED", limited)
	root := t.TempDir()
	f := files{serve(t, host.Config{
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{root}}, &stripe.Settings{Key: "OWN"}},
		Secrets:       map[string]string{"OWN": "env:OWN", "TASKS": "env:TASKS", "LIMITED": "env:LIMITED"},
		SecretActions: map[string][]string{"LIMITED": {"container.*", "file.delete"}},
	}, host.Options{}), root}
	file := filepath.Join(root, "out")
	write := func(id, gate, content string) string {
		return f.start(map[string]any{"name": id, "steps": []any{map[string]any{
			"id": "a", "uses": "file.write", "gate": gate, "with": map[string]any{"path": file, "content": content},
		}}}).GetID()
	}
	for content, why := range map[string]string{
		"${{ secrets.OWN }}":     "this worker's config does not allow this secret",
		"${{ secrets.LIMITED }}": "this worker's config allows it to container.*, file.delete, and not to file.write",
	} {
		task := write("refused", "none", content)
		require.ErrorContains(t, f.Client.GetWorkflow(t.Context(), task, "").Get(t.Context(), nil), why)
		require.NoFileExists(t, file)
	}
	require.Equal(t, compensations.Committed, f.report(write("write", "none", "${{ secrets.TASKS }}")).Status)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, tasks, string(content))
	require.NoError(t, os.WriteFile(file, []byte(tasks+"\n"+own+"\n"), 0o600))

	next := write("show", "ask", "nothing") // it refers to no secret, and shows what stands in the file
	require.Eventually(t, func() bool { return len(f.stateOf(next).Gates) == 1 }, waitFor, tick)
	diff := f.stateOf(next).Gates[0].Change.Diff
	require.Contains(t, diff, "***")
	require.NotContains(t, diff, tasks)
	require.NotContains(t, diff, own)
	require.NoError(t, f.Client.CancelWorkflow(t.Context(), next, ""))
	require.Error(t, f.Client.GetWorkflow(t.Context(), next, "").Get(t.Context(), nil))
}

// Whatever the worker uses itself is out of its tasks' reach.
func TestNoTaskCanNameWhatTheWorkerUses(t *testing.T) {
	configs := map[string]host.Config{"notices": {Notices: []notices.Channel{{Webhook: &notices.Webhook{Key: "OWN"}}}},
		"policy": {PolicyToken: "OWN"}}
	own := []string{"OWN"}
	for _, k := range host.Kinds {
		configs[k.Name()] = host.Config{Worlds: []activities.Settings{k.Sample}}
		own = append(own, activities.ListOwnSecrets(k.Sample)...)
	}
	require.Subset(t, own, []string{"KEY", "DSN", "URL", "PASSWORD", "TOKEN"})
	for name, c := range configs {
		c.Secrets = map[string]string{"TASKS": "env:TASKS"}
		for _, secret := range own {
			c.Secrets[secret] = "env:" + secret
		}
		for _, of := range c.Worlds {
			for _, secret := range activities.ListOwnSecrets(of) {
				require.NotContains(t, c.TaskSecrets(), secret, name)
			}
		}
		require.Contains(t, c.TaskSecrets(), "TASKS", name)
		require.Equal(t, name != "notices" && name != "policy", slices.Contains(c.TaskSecrets(), "OWN"))
	}
}
