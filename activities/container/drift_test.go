package container_test

import (
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

// applied is a container in which a step has run.
func applied(t *testing.T, with map[string]any) (b *containertest.Box, s *stage, e activities.Entry, before string) {
	t.Helper()
	b, s = containertest.Start(t), newStage(t, t.TempDir())
	b.Run(t, "echo one >/srv/a")
	before, e = containertest.Files(t, b), s.entry(t)
	with["container"], with["command"] = b.Name, "echo two >/srv/a; mkdir /srv/d"
	_, err := s.action.Apply(t.Context(), e, step(t, with), "")
	require.NoError(t, err)
	return b, s, e, before
}

func TestDriftIsShownAndOnlyThatDriftIsForced(t *testing.T) {
	t.Parallel()
	b, s, e, before := applied(t, map[string]any{})
	b.Run(t, "echo mine >/srv/b; rm -r /srv/d; chmod 600 /srv/a")
	drifted := containertest.Files(t, b)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Equal(t, "~ /srv (time)\n~ /srv/a (mode 0644 -> 0600)\n+ /srv/b\n- /srv/d\n", withTime(u.Drift.Diff))
	assert.Equal(t, drifted, containertest.Files(t, b))
	assert.Equal(t, b.ID, b.Inspect(t).ID)
	seen, err := s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, activities.Elsewise, seen.State)
	assert.Equal(t, u.Drift, seen.Drift)

	b.Run(t, "echo more >>/srv/b")
	newer, err := s.action.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, newer.Outcome, "it is not the drift that was shown")
	require.NotEqual(t, u.Drift.Digest, newer.Drift.Digest)

	u, err = s.action.Undo(t.Context(), e, activities.Decision{Force: newer.Drift.Digest})
	require.NoError(t, err)
	assert.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, before, containertest.Files(t, b))
}

// withTime adds the line of a folder whose time may or may not have gone on by a second.
func withTime(diff string) string {
	const line = "~ /srv (time)\n"
	if len(diff) > len(line) && diff[:len(line)] == line {
		return diff
	}
	return line + diff
}

func TestIgnoredPathsDoNotDriftAndAreNamedAsThrownAway(t *testing.T) {
	t.Parallel()
	b, s, e, before := applied(t, map[string]any{"ignore": []string{"/srv/cache", "/tmp"}})
	b.Run(t, "mkdir /srv/cache; echo x >/srv/cache/x; echo x >/tmp/x")
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome, "%+v", u)
	assert.Contains(t, u.Losses, "what is written below /srv/cache, /tmp is neither compared nor kept: it is thrown away")
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestSomeoneElseHasUndoneIt(t *testing.T) {
	t.Parallel()
	b, s, e, _ := applied(t, map[string]any{})
	seen, err := s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, activities.AsLeft, seen.State)
	b.Run(t, "rm /srv/a")
	seen, err = s.action.Observe(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, activities.Elsewise, seen.State)
}

func TestContainerRemovedByHandComesBackOnlyByForce(t *testing.T) {
	t.Parallel()
	b, s, e, before := applied(t, map[string]any{})
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Equal(t, "- container "+b.Name+"\n", u.Drift.Diff)
	u, err = s.action.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, before, containertest.Files(t, b))
}

func TestContainerReplacedByHandIsReplacedOnlyByForce(t *testing.T) {
	t.Parallel()
	b, s, e, before := applied(t, map[string]any{})
	require.NoError(t, b.ContainerRemove(t.Context(), b.ID, dockertypes.RemoveOptions{Force: true}))
	other, err := b.ContainerCreate(t.Context(), &dockertypes.Config{Image: containertest.ShellImage(t, b.Client)},
		&dockertypes.HostConfig{NetworkMode: "none"}, nil, nil, b.Name)
	require.NoError(t, err)
	u, err := s.action.Undo(t.Context(), e, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	assert.Contains(t, u.Drift.Diff, other.ID[:12])
	assert.Equal(t, other.ID, b.Inspect(t).ID)
	u, err = s.action.Undo(t.Context(), e, activities.Decision{Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, u.Outcome)
	assert.Equal(t, before, containertest.Files(t, b))
}
