package unit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/unit"
)

func TestMain(m *testing.M) {
	unit.Attend()
	containertest.Main(m, stopCase, startCase, pauseCase, resumeCase)
}

func TestStopConforms(t *testing.T) { actiontest.Run(t, stopCase) }

func TestStartConforms(t *testing.T) { actiontest.Run(t, startCase) }

func TestPauseConforms(t *testing.T) { actiontest.Run(t, pauseCase) }

func TestResumeConforms(t *testing.T) { actiontest.Run(t, resumeCase) }

// service is a unit that runs while there is a file: a stand-in for one of systemd.
func service(dir, name string) unit.Unit {
	running := filepath.Join(dir, name+".running")
	return unit.Unit{
		Start: []string{"sh", "-ec", "echo run >" + running}, Stop: []string{"rm", "-f", running},
		Running: []string{"test", "-e", running},
	}
}

func open(dir string) (activities.World, error) {
	return unit.New(unit.Config{State: filepath.Join(dir, "state"), Units: map[string]unit.Unit{
		"one": service(dir, "one"), "two": service(dir, "two"),
	}})
}

func run(t testing.TB, dir, name string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".running"), []byte("run\n"), 0o600))
}

func manifest(t testing.TB, dir string) string {
	found, err := filepath.Glob(filepath.Join(dir, "*.running"))
	require.NoError(t, err)
	return fmt.Sprint(strings.ReplaceAll(strings.Join(found, " "), dir, ""))
}

func named(name string) func(string) any {
	return func(string) any { return map[string]any{"unit": name} }
}

var stopCase = actiontest.Case{
	Name: "stop", Action: "unit.stop", Open: open, Manifest: manifest, Anew: true,
	Start: func(t testing.TB, dir string) { run(t, dir, "one"); run(t, dir, "two") },
	With:  named("one"), Next: named("two"),
	Checks:    []activities.Check{{Command: &activities.CommandCheck{Run: []string{"true"}}}},
	Meanwhile: func(t testing.TB, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "one.running"))) },
}

var startCase = actiontest.Case{
	Name: "start", Action: "unit.start", Open: open, Manifest: manifest, Anew: true,
	Start: func(testing.TB, string) {},
	With:  named("one"), Next: named("two"),
	Meanwhile: func(t testing.TB, dir string) { run(t, dir, "one") },
}

// boxes starts two containers that are units, one and two, whose names stand in the folder.
func boxes(t testing.TB, dir string) (one, two *containertest.Box) {
	one, two = containertest.Start(t), containertest.Start(t)
	for name, b := range map[string]*containertest.Box{"one": one, "two": two} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".box"), []byte(b.Name), 0o600))
	}
	return one, two
}

func pause(t testing.TB, b *containertest.Box) {
	require.NoError(t, b.ContainerPause(t.Context(), b.Name))
}

// boxIn is the name of a container that boxes has started.
func boxIn(dir, name string) string {
	raw, err := os.ReadFile(filepath.Join(dir, name+".box"))
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func openBoxes(dir string) (activities.World, error) {
	return unit.New(unit.Config{State: filepath.Join(dir, "state"), Units: map[string]unit.Unit{
		"one": {Container: boxIn(dir, "one")}, "two": {Container: boxIn(dir, "two")},
	}})
}

func boxStates(t testing.TB, dir string) string {
	docker := containertest.Docker(t)
	var states []string
	for _, name := range []string{"one", "two"} {
		c, err := docker.ContainerInspect(t.Context(), boxIn(dir, name))
		require.NoError(t, err)
		states = append(states, c.State.Status)
	}
	return strings.Join(states, " ")
}

var pauseCase = actiontest.Case{
	Name: "pause", Action: "unit.pause", Open: openBoxes, Manifest: boxStates, Anew: true, Sample: 1, EitherWay: true,
	Start: func(t testing.TB, dir string) { boxes(t, dir) },
	With:  named("one"), Next: named("two"),
	Meanwhile: func(t testing.TB, dir string) {
		pause(t, &containertest.Box{Client: containertest.Docker(t), Name: boxIn(dir, "one")})
	},
}

var resumeCase = actiontest.Case{
	Name: "resume", Action: "unit.resume", Open: openBoxes, Manifest: boxStates, Anew: true, Sample: 1, EitherWay: true,
	Start: func(t testing.TB, dir string) {
		one, two := boxes(t, dir)
		pause(t, one)
		pause(t, two)
	},
	With: named("one"), Next: named("two"),
	Meanwhile: func(t testing.TB, dir string) {
		require.NoError(t, containertest.Docker(t).ContainerUnpause(t.Context(), boxIn(dir, "one")))
	},
}
