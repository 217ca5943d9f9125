package containertest_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) {
	container.Attend()
	code := actiontest.Main(m, changing, reading)
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func TestChanging(t *testing.T) {
	containertest.Docker(t)
	actiontest.Run(t, changing)
}

func TestReading(t *testing.T) {
	containertest.Docker(t)
	actiontest.Run(t, reading)
}

var changing = actiontest.Case{
	Name:   "container.exec that changes",
	Action: "container.exec",
	Start:  start,
	Open:   containertest.Open,
	With: func(dir string) any {
		return map[string]any{
			"container": containertest.NameIn(dir), "command": "echo two >/srv/a; rm -r /srv/d; touch /srv/new; /bin/sleep 600 & echo canary-4711-secret",
		}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "echo next >>/srv/a; mkdir /srv/e"}
	},
	Checks:    []activities.Check{{Exists: &activities.ExistsCheck{Path: "/srv/a"}}},
	Manifest:  manifest,
	Drift:     func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo drift >>/srv/drift") },
	Meanwhile: func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo meanwhile >/srv/b") },
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

// reading is brief: what takes nothing back has few ways to go wrong about it, and each of its points is drawn in time.
var reading = actiontest.Case{
	Name:   "container.exec that reads",
	Action: "container.exec",
	Start:  start,
	Open:   containertest.Open,
	With: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "cat /srv/a | cat"}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "ls -l /srv"}
	},
	Manifest: manifest,
	Undone:   activities.Nothing,
	Anew:     true,
	Brief:    true,
	Sample:   1,
}

func start(t testing.TB, dir string) {
	containertest.StartIn(t, dir, map[string]string{"a": "one\n", "d/x": "x\n"})
}

// manifest is the filesystem, how the container stands, and what a token has left beside it.
func manifest(t testing.TB, dir string) string {
	t.Helper()
	b := containertest.In(t, dir)
	lines := []string{containertest.Files(t, b), b.Inspect(t).State.Status}
	for _, token := range containertest.TokensIn(t, dir) {
		for _, left := range containertest.Left(t, token) {
			lines = append(lines, left.Names...)
		}
		if kept := containertest.Kept(t, token); len(kept) > 1 {
			lines = append(lines, fmt.Sprintf("%d images of what a rollback has kept", len(kept)))
		}
	}
	return strings.Join(lines, "\n")
}
