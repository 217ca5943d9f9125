package replace_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) { containertest.Main(m, replacing) }

func TestReplacing(t *testing.T) {
	containertest.Docker(t)
	actiontest.Run(t, replacing)
}

var replacing = actiontest.Case{
	Name:   "container.replace",
	Action: "container.replace",
	Start: func(t testing.TB, dir string) {
		containertest.StartIn(t, dir, map[string]string{"a": "one\n"})
		for i, id := range containertest.Greens(t) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("green", i)), []byte(id), 0o600))
		}
	},
	Open: containertest.Open,
	With: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "image": greenIn(dir, 0)}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "image": greenIn(dir, 1)}
	},
	Checks: []activities.Check{
		{Exists: &activities.ExistsCheck{Path: "/srv/green"}},
		{When: activities.Live, Exists: &activities.ExistsCheck{Path: "/srv/green"}},
	},
	Manifest: manifest,
	Drift:    func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo drift >>/srv/drift") },
	Meanwhile: func(t testing.TB, dir string) {
		_, err := containertest.Docker(t).ContainerUpdate(t.Context(), containertest.NameIn(dir), dockertypes.UpdateConfig{
			RestartPolicy: dockertypes.RestartPolicy{Name: dockertypes.RestartPolicyUnlessStopped},
		})
		require.NoError(t, err)
	},
	Undone:    activities.Compensated,
	Redone:    func(left, now string) bool { return withoutID(left) == withoutID(now) },
	Anew:      true,
	Sample:    1,
	EitherWay: true,
}

func greenIn(dir string, i int) string {
	id, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("green", i)))
	if err != nil {
		panic(err)
	}
	return string(id)
}

// manifest is the container with its files, and what runs or waits beside it. What only holds a
// name is no part.
func manifest(t testing.TB, dir string) string {
	t.Helper()
	b := containertest.In(t, dir)
	c := b.Inspect(t)
	lines := []string{c.ID, c.Name, c.State.Status, c.Image, containertest.Files(t, b)}
	for _, token := range containertest.TokensIn(t, dir) {
		for _, left := range containertest.Left(t, token) {
			name := strings.Join(left.Names, " ")
			if left.State == "running" || strings.Contains(name, "-new-") || strings.Contains(name, "-trial-") {
				lines = append(lines, name+" "+left.State)
			}
		}
	}
	return strings.Join(lines, "\n")
}

func withoutID(manifest string) string {
	_, rest, _ := strings.Cut(manifest, "\n")
	return rest
}
