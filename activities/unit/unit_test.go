package unit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/unit"
)

// bed is a world with one unit, app.
type bed struct {
	*testing.T
	world activities.World
	mark  string
}

func newBed(t *testing.T, u unit.Unit) *bed {
	w, err := unit.New(unit.Config{State: t.TempDir(), Units: map[string]unit.Unit{"app": u}})
	require.NoError(t, err)
	mark, err := w.Journal(t.Context())
	require.NoError(t, err)
	return &bed{t, w, mark}
}

func (b *bed) step(name string, with map[string]any) (activities.Action, activities.Entry, activities.Step) {
	raw, err := json.Marshal(with)
	require.NoError(b, err)
	for _, a := range b.world.Actions {
		if a.Spec().Name == name {
			params, err := a.Spec().EntryParams(raw)
			require.NoError(b, err)
			token := activities.NewToken(b.Name(), fmt.Sprint(name, with), 1)
			return a, activities.Entry{Token: token, Action: name, UndoType: name + ".undo", Params: params,
				Place: activities.Place{Journal: b.mark}}, activities.Step{ID: name, With: raw}
		}
	}
	require.FailNow(b, "no action "+name)
	return nil, activities.Entry{}, activities.Step{}
}

func (b *bed) apply(name string, with map[string]any) (activities.Result, error) {
	a, e, s := b.step(name, with)
	return a.Apply(b.Context(), e, s, "")
}

func (b *bed) undo(name string, with map[string]any) (activities.Undone, error) {
	a, e, _ := b.step(name, with)
	return a.Undo(b.Context(), e, activities.Decision{})
}

var app = map[string]any{"unit": "app"}

// TestWhatCannotBeAskedIsNotStopped has a program that fails, and does not say no.
func TestWhatCannotBeAskedIsNotStopped(t *testing.T) {
	dir := t.TempDir()
	for _, status := range []int{2, 4, 126, 127} {
		u := service(dir, "app")
		u.Running = []string{"sh", "-c", fmt.Sprintf("echo no bus; exit %d", status)}
		_, err := newBed(t, u).apply("unit.stop", app)
		require.ErrorContains(t, err, "whether the unit runs is not known", "status %d", status)
		require.ErrorContains(t, err, "no bus")
	}
	u := service(dir, "app")
	u.Systemd, u.Running = "app.service", []string{"false"}
	_, err := newBed(t, u).apply("unit.stop", app)
	require.ErrorContains(t, err, "whether the unit runs is not known", "systemctl exits with 1 where it has no bus")
}

// TestWhatIsStillUnderWayIsTakenBack has a service manager that starts a unit after its command has
// been killed: the unit looks stopped when the undo comes.
func TestWhatIsStillUnderWayIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	u := service(dir, "app")
	job := filepath.Join(dir, "job") // what the manager has been asked for
	u.Start = []string{"sh", "-ec", "echo start >" + job + "; exit 1"}
	u.Stop = []string{"sh", "-ec", "rm -f " + job + " " + filepath.Join(dir, "app.running")}
	b := newBed(t, u)
	_, err := b.apply("unit.start", app)
	require.Error(t, err)
	require.FileExists(t, job)
	undone, err := b.undo("unit.start", app)
	require.NoError(t, err)
	require.Equal(t, activities.Restored, undone.Outcome)
	require.NoFileExists(t, job)
}

// TestAUnitThatIsAsItIsToBeIsLeftAlone stops a unit that is stopped, and starts one with if: false.
func TestAUnitThatIsAsItIsToBeIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	u := service(dir, "app")
	u.Stop = []string{"false"}
	b := newBed(t, u)
	r, err := b.apply("unit.stop", app)
	require.NoError(t, err)
	require.Equal(t, false, r.Outputs["ran"])
	undone, err := b.undo("unit.stop", app)
	require.NoError(t, err)
	require.Equal(t, "the unit app is stopped, as before", undone.Observed)

	leave := map[string]any{"unit": "app", "if": false}
	r, err = b.apply("unit.start", leave)
	require.NoError(t, err)
	require.Equal(t, "the unit app is stopped", r.Summary)
	_, err = b.undo("unit.start", leave)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "app.running"))
}

// TestAServiceOutlivesTheStepAndEndsWithItsUndo starts a program that goes on by itself.
func TestAServiceOutlivesTheStepAndEndsWithItsUndo(t *testing.T) {
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	running := "kill -0 $(cat " + pid + ") 2>/dev/null"
	b := newBed(t, unit.Unit{
		Start:   []string{"sh", "-ec", running + " && exit 0; sleep 1000 & echo $! >" + pid},
		Stop:    []string{"sh", "-c", "kill $(cat " + pid + "); while " + running + "; do sleep 0.01; done"},
		Running: []string{"sh", "-c", running + " || exit 1"},
	})
	_, err := b.apply("unit.start", app)
	require.NoError(t, err)
	raw, err := os.ReadFile(pid)
	require.NoError(t, err)
	alive := func() bool { return exec.Command("kill", "-0", strings.TrimSpace(string(raw))).Run() == nil }
	require.True(t, alive(), "it outlives the step")
	_, err = b.undo("unit.start", app)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !alive() }, 10*time.Second, 10*time.Millisecond)
}

func TestHealthIsAsked(t *testing.T) {
	dir := t.TempDir()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	u := service(dir, "app")
	u.Health.URL = server.URL
	b := newBed(t, u)
	r, err := b.apply("unit.health", app)
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["healthy"])
	status = http.StatusServiceUnavailable
	_, err = b.apply("unit.health", map[string]any{"unit": "app", "within": "300ms"})
	require.Equal(t, activities.CheckFailed, activities.TypeOf(err), "%v", err)
	require.ErrorContains(t, err, "503")
	r, err = b.apply("unit.health", map[string]any{"unit": "app", "must": false})
	require.NoError(t, err)
	require.Equal(t, false, r.Outputs["healthy"])
	require.Equal(t, true, r.Outputs["asked"])
	require.Len(t, r.Notes, 1)

	u.Health = unit.Health{Command: []string{filepath.Join(dir, "missing")}}
	r, err = newBed(t, u).apply("unit.health", app)
	require.NoError(t, err, "what cannot be asked is not unhealthy")
	require.Equal(t, false, r.Outputs["asked"])
	require.Contains(t, r.Summary, "is not known")
}

func TestBadUnitsAreRefused(t *testing.T) {
	for said, u := range map[string]unit.Unit{
		"units.app.start: is missing; give systemd, container, or all of start, stop and running": {Stop: []string{"x"}, Running: []string{"x"}},
		"units.app.stop: it stands beside a.service":                                              {Systemd: "a.service", Stop: []string{"x"}},
		`units.app.systemd: "/a.service" must be the name of a unit`:                              {Systemd: "/a.service"},
		"units.app.running: names no program":                                                     {Start: []string{"x"}, Stop: []string{"x"}, Running: []string{""}},
		`units.app.health.url: "there" must be a URL`:                                             {Systemd: "a.service", Health: unit.Health{URL: "there"}},
		"units.app.health: it has both url and command":                                           {Systemd: "a.service", Health: unit.Health{URL: "http://x", Command: []string{"x"}}},
	} {
		var problems []string
		err := (&unit.Settings{Units: map[string]unit.Unit{"app": u}}).Check(activities.Opening{},
			func(field, format string, args ...any) {
				problems = append(problems, field+": "+fmt.Sprintf(format, args...))
			})
		require.NoError(t, err)
		require.Contains(t, strings.Join(problems, "\n"), said)
	}
	_, err := newBed(t, service(t.TempDir(), "app")).apply("unit.stop", map[string]any{"unit": "other"})
	require.ErrorContains(t, err, `this worker has no unit "other"; unit.units in its config has app`)
}
