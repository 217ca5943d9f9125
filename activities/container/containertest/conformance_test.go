package containertest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) { containertest.Main(m, changing) }

func TestChanging(t *testing.T) {
	containertest.Docker(t)
	actiontest.Run(t, changing)
}

var changing = actiontest.Case{
	Name:   "container.exec that changes",
	Action: "container.exec",
	Start:  containertest.StartCase,
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
	Manifest:  containertest.Manifest,
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
