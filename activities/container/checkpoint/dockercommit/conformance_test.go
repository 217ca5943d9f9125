package dockercommit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/checkpointtest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) { containertest.Main(m, changing()) }

func TestBackend(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, checkpointtest.Subject{})
}

func TestChanging(t *testing.T) {
	t.Parallel()
	containertest.Docker(t)
	actiontest.Run(t, changing())
}

func changing() actiontest.Case {
	c := checkpointtest.Exec("container.exec that changes")
	c.Start, c.Open = containertest.StartCase, containertest.Open
	c.Manifest = containertest.Manifest
	c.Drift = func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo drift >>/srv/drift") }
	c.Meanwhile = func(t testing.TB, dir string) { containertest.In(t, dir).Run(t, "echo meanwhile >/srv/b") }
	c.Undone, c.Reset = activities.Compensated, asTheImage
	return c
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
