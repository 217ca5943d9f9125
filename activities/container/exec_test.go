package container_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestChangeAndUndo(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	b.Run(t, "echo one >/srv/a; mkdir /srv/d; chmod 750 /srv/d; echo x >/srv/d/x")
	before := containertest.Files(t, b)
	e := s.entry(t)
	r, err := s.action.Apply(t.Context(), e, step(t, map[string]any{
		"container": b.Name,
		"command": "echo two >/srv/a; rm -r /srv/d; mkdir /srv/new; touch /srv/new/f; rm /bin/xargs; echo done; " +
			"echo why >&2",
	}), "")
	require.NoError(t, err)
	assert.Equal(t, "done\n", r.Outputs["stdout"])
	assert.Equal(t, 0, r.Outputs["exit_code"])
	assert.Equal(t, "why\n", r.Outputs["stderr"])
	assert.Equal(t, true, r.Outputs["changed"])
	assert.Subset(t, r.Outputs["paths"], []string{"+ /srv/new", "- /srv/d"})
	assert.FileExists(t, r.Outputs["log"].(string))
	assert.Equal(t, containertest.Checkpoints(t, e.Token)[0].ID, r.Outputs["checkpoint"])
	require.NotEqual(t, before, containertest.Files(t, b))
	seen, err := s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, activities.AsLeft, seen.State)

	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	for _, loss := range checkpoint.LossesByCommit() {
		assert.Contains(t, u.Losses, loss)
	}
	assert.Equal(t, before, containertest.Files(t, b))
	assert.True(t, b.Inspect(t).State.Running)
	seen, err = s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, activities.AsBefore, seen.State)

	again, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, u, again)
	assert.Empty(t, containertest.Checkpoints(t, e.Token))
}

func TestReadOnlyCommandTakesNoCheckpoint(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	b.Run(t, "echo one >/srv/a")
	e, look := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "cat /srv/a | cat; true || echo no"})
	r, err := s.action.Apply(t.Context(), e, look, "")
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"stdout": "one\n", "stderr": "", "exit_code": 0, "changed": false}, r.Outputs)
	assert.Empty(t, containertest.Checkpoints(t, e.Token))

	b.Run(t, "echo two >/srv/a")
	again, err := s.action.Apply(t.Context(), e, look, "")
	require.NoError(t, err)
	assert.Equal(t, "one\n", again.Outputs["stdout"], "the step has run once")

	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Nothing, u.Outcome)
	assert.Equal(t, b.ID, b.Inspect(t).ID, "the container was left alone")
	_, err = s.action.Apply(t.Context(), e, look, "")
	assert.Equal(t, activities.Fenced, activities.TypeOf(err))
}

func TestFailedCommandIsDeniedAndUndone(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	before := containertest.Files(t, b)
	e := s.entry(t)
	secret := "open-sesame-42"
	m := &activities.Masker{}
	m.Add(secret)
	ctx := activities.WithMasker(t.Context(), m)
	fail := step(t,
		map[string]any{"container": b.Name, "command": "echo x >/srv/a; echo the cause is " + secret + " >&2; exit 7"})
	for range 2 {
		_, err := s.action.Apply(ctx, e, fail, "")
		require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%v", err)
		var typed *activities.Error
		require.ErrorAs(t, err, &typed)
		assert.Contains(t, typed.Message, "exit status 7")
		assert.Equal(t, "the cause is ***\n", typed.Output)
		assert.NotContains(t, typed.Message, secret)
	}
	u, err := s.action.Undo(ctx, e, activities.Decision{})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestTheJournalHoldsNoSecretThatACommandPrints(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	m := &activities.Masker{}
	m.Add("open-sesame-42")
	e := s.entry(t)
	command := "touch /srv/a; printf 'it is open-'; sleep 0.2; echo -n noise >&2; echo sesame-42.; echo " +
		"open-sesame-42 >&2; echo PASSWORD=$PASSWORD"
	r, err := s.action.Apply(activities.WithMasker(t.Context(), m), e,
		step(t, map[string]any{"container": b.Name, "command": command,
			"env": map[string]string{"PASSWORD": "open-sesame-42"}}), "")
	require.NoError(t, err)
	assert.Contains(t, r.Outputs["stdout"], "it is ***.\n")
	log, err := os.ReadFile(r.Outputs["log"].(string))
	require.NoError(t, err)
	assert.Contains(t, string(log), "PASSWORD=***")
	assert.NotContains(t, string(log), "sesame", "though it came in two pieces")
	require.NoError(t, filepath.WalkDir(s.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		assert.NotContains(t, string(content), "open-sesame-42", path)
		return err
	}))
}

func TestArgvUserWorkdirEnv(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	r, err := s.action.Apply(t.Context(), s.entry(t), step(t, map[string]any{
		"container": b.Name, "argv": []string{"/bin/sh", "-c", `echo "$A $PWD" $(cat /root/x 2>&1)`},
		"workdir": "/srv", "env": map[string]string{"A": "$b c"}, "user": "nobody",
	}), "")
	require.NoError(t, err)
	assert.Contains(t, r.Outputs["stdout"], "$b c /srv")
	assert.Contains(t, r.Outputs["stdout"], "permission denied")
}

func TestCommandThatCannotStart(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	for says, with := range map[string]map[string]any{
		"no-such-program": {"argv": []string{"no-such-program"}},
		"no-such-user":    {"command": "touch /srv/a", "user": "no-such-user"},
	} {
		with["container"] = b.Name
		e := s.entry(t)
		for range 2 {
			_, err := s.action.Apply(t.Context(), e, step(t, with), "")
			require.Equal(t, activities.Unsuccessful, activities.TypeOf(err), "%s: %v", says, err)
			var typed *activities.Error
			require.ErrorAs(t, err, &typed)
			assert.Contains(t, typed.Message+typed.Output, says)
		}
	}
}

func TestCommandThatLeavesAProcessBehind(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e, began := s.entry(t), time.Now()
	_, err := s.action.Apply(t.Context(), e,
		step(t, map[string]any{"container": b.Name, "command": "/bin/sleep 300 & sleep 0.3; echo started"}), "")
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 4*time.Minute, "it does not wait for what goes on")
	require.Len(t, processes(t, b), 2)
	_, err = s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	assert.Len(t, processes(t, b), 1, "the undo ends what the step has started")
}

func processes(t testing.TB, b *containertest.Box) [][]string {
	t.Helper()
	top, err := b.ContainerTop(t.Context(), b.Name, nil)
	require.NoError(t, err)
	return top.Processes
}

func TestChecksLookIntoTheContainer(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	ctx := activities.WithCheckCommands(t.Context(), []string{"cat", "sh"})
	with := map[string]any{"container": b.Name, "command": `mkdir -p /srv/d; echo '{"port": 80}' >/srv/d/a.json`}
	_, err := s.action.Apply(ctx, s.entry(t), step(t, with,
		activities.Check{Exists: &activities.ExistsCheck{Path: "/srv/d"}},
		activities.Check{Exists: &activities.ExistsCheck{Path: "/bin/ls"}},
		activities.Check{JSON: &activities.JSONCheck{File: "/srv/d/a.json", At: "/port", Equals: []byte("80")}},
		activities.Check{When: activities.Live, Command: &activities.CommandCheck{Run: []string{"cat", "/srv/d/a.json"}}},
	), "")
	require.NoError(t, err)
	for _, check := range []activities.Check{
		{Exists: &activities.ExistsCheck{Path: "/srv/none"}},
		{JSON: &activities.JSONCheck{File: "/srv/d/a.json", At: "/port", Equals: []byte("81")}},
		{Command: &activities.CommandCheck{Run: []string{"sh", "-c", "exit 1"}}},
	} {
		e := s.entry(t)
		for range 2 {
			_, err := s.action.Apply(ctx, e, step(t, with, check), "")
			assert.Equal(t, activities.CheckFailed, activities.TypeOf(err), "%v", err)
		}
	}
}

func TestApprovalIsForThisCommandInThisFilesystem(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e := s.entry(t)
	with := step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/a"})
	change, err := s.action.Plan(t.Context(), e, with)
	require.NoError(t, err)
	assert.Equal(t, activities.Medium, change.Risk)
	assert.Equal(t, activities.Snapshot, change.Strategy)
	assert.Contains(t, change.Diff, "echo x >/srv/a")
	_, err = s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "echo y >/srv/a"}),
		change.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err))
	b.Run(t, "echo other >/srv/b")
	_, err = s.action.Apply(t.Context(), e, with, change.Digest)
	require.Equal(t, activities.StaleApproval, activities.TypeOf(err))
	change, err = s.action.Plan(t.Context(), e, with)
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), e, with, change.Digest)
	require.NoError(t, err)
	_, err = s.action.Apply(t.Context(), e, with, change.Digest)
	require.NoError(t, err, "with a record it never judges again")
}

func TestPlanOfAReadOnlyCommandNeedsNobody(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	change, err := s.action.Plan(t.Context(), s.entry(t), step(t, map[string]any{"container": b.Name, "command": "ls -l"}))
	require.NoError(t, err)
	assert.Equal(t, activities.Low, change.Risk)
	assert.Equal(t, activities.NoUndo, change.Strategy)
	assert.Empty(t, change.Losses)
}

func TestReleaseKeepsTheTombstoneOnly(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	e, with := s.entry(t), step(t, map[string]any{"container": b.Name, "command": "echo x >/srv/a"})
	r, err := s.action.Apply(t.Context(), e, with, "")
	require.NoError(t, err)
	require.Len(t, containertest.Checkpoints(t, e.Token), 1)
	for range 2 {
		require.NoError(t, s.action.Release(t.Context(), e))
	}
	assert.Empty(t, containertest.Checkpoints(t, e.Token))
	assert.NoFileExists(t, r.Outputs["log"].(string))
	_, err = s.action.Apply(t.Context(), e, with, "")
	assert.Equal(t, activities.Fenced, activities.TypeOf(err))
	_, err = s.action.Undo(t.Context(), e, activities.Decision{})
	assert.Equal(t, activities.Fenced, activities.TypeOf(err))
	assert.Equal(t, b.ID, b.Inspect(t).ID)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	for name, c := range map[string]struct {
		with map[string]any
		says string
	}{
		"no such container": {map[string]any{"container": "unwind-none", "command": "rm a"},
			`no container "unwind-none"; docker ps`},
		"nothing to run": {map[string]any{"container": b.Name}, "give one of command"},
		"two to run": {map[string]any{"container": b.Name, "command": "ls", "argv": []string{"ls"}},
			"give one of command"},
		"unknown field": {map[string]any{"container": b.Name, "cmd": "ls"}, "cmd"},
		"relative ignore": {map[string]any{"container": b.Name, "command": "rm a", "ignore": []string{"tmp"}},
			`"tmp" is not an absolute path`},
		"relative workdir": {map[string]any{"container": b.Name, "command": "rm a", "workdir": "srv"}, "workdir"},
	} {
		for what, call := range map[string]func(context.Context) error{
			"plan": func(ctx context.Context) error { _, err := s.action.Plan(ctx, s.entry(t), step(t, c.with)); return err },
			"apply": func(ctx context.Context) error {
				_, err := s.action.Apply(ctx, s.entry(t), step(t, c.with), "")
				return err
			},
		} {
			err := call(t.Context())
			assert.Equal(t, activities.Refused, activities.TypeOf(err), "%s: %s", name, what)
			require.ErrorContains(t, err, c.says, "%s: %s", name, what)
		}
	}
	require.NoError(t, b.ContainerKill(t.Context(), b.ID, "KILL"))
	require.Eventually(t, func() bool { return !b.Inspect(t).State.Running }, time.Minute, 10*time.Millisecond)
	_, err := s.action.Apply(t.Context(), s.entry(t), step(t, map[string]any{"container": b.Name, "command": "rm a"}), "")
	assert.ErrorContains(t, err, "docker start "+b.Name)
}

func TestOtherJournalOrEngineIsTheWrongPlace(t *testing.T) {
	t.Parallel()
	b, s := containertest.Start(t), newStage(t, t.TempDir())
	journal, engine, _ := strings.Cut(s.place, "@")
	for _, place := range []string{"0000000000000000@" + engine, journal + "@ANOTHER", ""} {
		e := s.entry(t)
		e.Place.Journal = place
		_, err := s.action.Apply(t.Context(), e, step(t, map[string]any{"container": b.Name, "command": "rm a"}), "")
		assert.Equal(t, activities.WrongPlace, activities.TypeOf(err), place)
		_, err = s.action.Undo(t.Context(), e, activities.Decision{})
		assert.Equal(t, activities.WrongPlace, activities.TypeOf(err), place)
	}
}

func TestNoEngine(t *testing.T) {
	t.Parallel()
	w, err := container.New(container.Config{State: t.TempDir(), Host: "unix:///nowhere/docker.sock"})
	require.NoError(t, err, "a worker starts without an engine")
	_, err = w.Journal(t.Context())
	require.ErrorContains(t, err, "the container engine does not answer")
	assert.False(t, activities.TypeOf(err).Final(), "it may be back soon")
}
