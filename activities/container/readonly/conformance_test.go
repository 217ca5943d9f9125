package readonly_test

import (
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
)

func TestMain(m *testing.M) { containertest.Main(m, reading) }

func TestReading(t *testing.T) {
	containertest.Docker(t)
	actiontest.Run(t, reading)
}

// reading is brief: what takes nothing back has few ways to go wrong about it, and each of its
// points is drawn in time.
var reading = actiontest.Case{
	Name:   "container.exec that reads",
	Action: "container.exec",
	Start:  containertest.StartCase,
	Open:   containertest.Open,
	With: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "cat /srv/a | cat"}
	},
	Next: func(dir string) any {
		return map[string]any{"container": containertest.NameIn(dir), "command": "ls -l /srv"}
	},
	Manifest: containertest.Manifest,
	Undone:   activities.Nothing,
	Anew:     true,
	Brief:    true,
	Sample:   1,
}
