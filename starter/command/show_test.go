package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows"
)

const twice = `name: set it twice
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: a, value: y}}
`

// shown is what show -o json prints of a task.
func (d *desk) shown(id string) (s tasks.Standing) {
	d.Helper()
	require.NoError(d, json.Unmarshal([]byte(d.ok("show", id, "-o", "json")), &s))
	return s
}

func TestOutputsStandInTheJSONOfAWholeTask(t *testing.T) {
	d := newDesk(t)
	d.world.set("a", "it was "+secretValue)
	out := d.ok("run", d.file(twice), "--id", t.Name(), "--watch")
	require.Contains(t, out, "\n            before: it was ***\n")
	require.Contains(t, out, "\n            before: x\n")
	want := map[string]any{"before": "x"}
	s := d.shown(t.Name())
	require.Equal(t, map[string]any{"before": "it was ***"}, s.Steps[0].Outputs)
	require.Equal(t, want, s.Steps[1].Outputs)
	require.False(t, s.Steps[1].Ended.Before(s.Steps[1].Began) || s.Steps[1].Began.IsZero())

	d.ok("run", d.file(twice+"  - {id: three, uses: fake.set, with: {key: b, value: y}, gate: ask}\n"), "--id", t.Name()+"-open")
	d.until(t.Name()+"-open", atGate)
	require.Equal(t, map[string]any{"before": "x"}, d.shown(t.Name() + "-open").Steps[1].Outputs, "its worker tells them")
	d.stopWorker()
	require.Equal(t, map[string]any{"before": "x"}, d.shown(t.Name() + "-open").Steps[1].Outputs, "its history tells them")
	d.startWorker()
	d.ok("cancel", t.Name()+"-open")
}

func TestNoStateIsEmptyInTheJSONOfATask(t *testing.T) {
	d := newDesk(t)
	require.Equal(t, statusFailed, d.do("run", d.file(failing), "--id", t.Name(), "--watch").status)
	s := d.shown(t.Name())
	require.Equal(t, workflows.Done, s.Steps[0].State)
	require.Equal(t, workflows.StepFailed, s.Steps[1].State)

	d.stopWorker()
	d.ok("run", d.file(twice), "--id", t.Name()+"-unread")
	require.Equal(t, workflows.NotBegun, d.shown(t.Name()+"-unread").Phase)
	require.Contains(t, d.ok("show", t.Name()+"-unread"), "not begun: no worker has taken it yet")
	d.startWorker()
	d.ok("watch", t.Name()+"-unread")
}

func TestListNamesTasks(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(twice), "--id", t.Name(), "--watch")
	require.Eventually(t, func() bool {
		return strings.Contains(normal(d.ok("list")), t.Name()+" set it twice committed ")
	}, waitFor, tick)
}

func TestValidatePrintsProblemsAsJSON(t *testing.T) {
	d := newDesk(t)
	check := func(text string) (v validJSON, status int) {
		r := d.do("validate", d.file(text), "-o", "json")
		require.NoError(t, json.Unmarshal([]byte(r.out), &v), r.out+r.err)
		return v, r.status
	}
	v, status := check(twice)
	require.Equal(t, statusOK, status)
	require.Equal(t, 2, v.Steps)
	require.Empty(t, v.Problems)

	v, status = check("name: wrong\nsteps:\n  - {id: one, uses: fake.sett}\n")
	require.Equal(t, statusUsage, status)
	require.Len(t, v.Problems, 1)
	require.Equal(t, []any{3, "steps[0].uses"}, []any{v.Problems[0].Line, v.Problems[0].Field})
	require.Zero(t, v.Steps)
}
