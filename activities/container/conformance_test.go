package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
)

func TestConformance(t *testing.T) {
	docker(t)
	t.Run("changing", func(t *testing.T) { actiontest.Run(t, changing) })
	t.Run("reading", func(t *testing.T) { actiontest.Run(t, reading) })
}

var changing = actiontest.Case{
	Name:   "container.exec that changes",
	Action: "container.exec",
	Start:  startCase,
	Open:   openCase,
	With: func(dir string) any {
		return map[string]any{
			"container": nameIn(dir), "command": "echo two >/srv/a; rm -r /srv/d; touch /srv/new; /bin/sleep 600 & echo canary-4711-secret",
		}
	},
	Next: func(dir string) any {
		return map[string]any{"container": nameIn(dir), "command": "echo next >>/srv/a; mkdir /srv/e"}
	},
	Checks:    []activities.Check{{Exists: &activities.ExistsCheck{Path: "/srv/a"}}},
	Manifest:  caseManifest,
	Drift:     func(t testing.TB, dir string) { boxIn(t, dir).run(t, "echo drift >>/srv/drift") },
	Meanwhile: func(t testing.TB, dir string) { boxIn(t, dir).run(t, "echo meanwhile >/srv/b") },
	Undone:    activities.Compensated,
	Reset:     asTheImage,
	Secret:    "canary-4711-secret",
	Sample:    1,
}

// asTheImage says that after is what the image made: all that the case and its steps do is in /srv.
func asTheImage(before, after string) bool {
	but := func(manifest string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(manifest, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "srv ") || strings.HasPrefix(line, "srv/")
		}), "\n")
	}
	return !strings.Contains(after, "\nsrv/") && but(before) == but(after)
}

var reading = actiontest.Case{
	Name:     "container.exec that reads",
	Action:   "container.exec",
	Start:    startCase,
	Open:     openCase,
	With:     func(dir string) any { return map[string]any{"container": nameIn(dir), "command": "cat /srv/a | cat"} },
	Next:     func(dir string) any { return map[string]any{"container": nameIn(dir), "command": "ls -l /srv"} },
	Manifest: caseManifest,
	Undone:   activities.Nothing,
	Anew:     true,
	Sample:   1,
}

func startCase(t testing.TB, dir string) {
	b := startBox(t)
	b.run(t, "echo one >/srv/a; mkdir /srv/d; echo x >/srv/d/x")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(b.name), 0o600))
	t.Cleanup(func() {
		for _, token := range tokensIn(t, dir) {
			removeImagesOf(t, token)
		}
	})
}

func openCase(dir string) (activities.World, error) {
	return container.New(container.Config{State: dir})
}

func nameIn(dir string) string {
	name, err := os.ReadFile(filepath.Join(dir, "name"))
	if err != nil {
		panic(err)
	}
	return string(name)
}

func boxIn(t testing.TB, dir string) *box { return &box{Client: docker(t), name: nameIn(dir)} }

func tokensIn(t testing.TB, dir string) []string {
	t.Helper()
	folders, err := os.ReadDir(filepath.Join(dir, "container", "tokens"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	names := make([]string, 0, len(folders))
	for _, f := range folders {
		names = append(names, f.Name())
	}
	return names
}

// caseManifest is the filesystem, how the container stands, and what a token has left beside it.
func caseManifest(t testing.TB, dir string) string {
	t.Helper()
	b := boxIn(t, dir)
	lines := []string{files(t, b), b.inspect(t).State.Status}
	for _, token := range tokensIn(t, dir) {
		lines = append(lines, leftOver(t, b, token)...)
		if kept := keptImages(t, token); len(kept) > 1 {
			lines = append(lines, fmt.Sprintf("%d images of what a rollback has kept", len(kept)))
		}
	}
	return strings.Join(lines, "\n")
}
