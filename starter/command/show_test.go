package command

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
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

	d.ok("run", d.file(twice+"  - {id: three, uses: fake.set, with: {key: b, value: y}, gate: ask}\n"), "--id",
		t.Name()+"-open")
	d.until(t.Name()+"-open", atGate)
	require.Equal(t, map[string]any{"before": "x"}, d.shown(t.Name() + "-open").Steps[1].Outputs, "its worker tells them")
	d.leaveQueue()
	require.Equal(t, map[string]any{"before": "x"}, d.shown(t.Name() + "-open").Steps[1].Outputs, "its history tells them")
	d.startWorker()
	d.ok("cancel", t.Name()+"-open")
}

// TestTheHorizonOfWhatATaskHasDoneIsShown: until when it can be rolled back, while it can.
func TestTheHorizonOfWhatATaskHasDoneIsShown(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file("keep: 2h\n"+twice+"  - {id: three, uses: fake.set, with: {key: b, value: y}, gate: ask}\n"), "--id",
		t.Name())
	require.Equal(t, 2*time.Hour, d.until(t.Name(), atGate).Gates[0].Change.Horizon)
	require.Zero(t, d.shown(t.Name()).Horizon, "it has not ended")
	d.ok("approve", t.Name(), "three", "--yes")
	d.ok("watch", t.Name())

	run, err := d.client.DescribeWorkflowExecution(t.Context(), t.Name(), "")
	require.NoError(t, err)
	until := run.GetWorkflowExecutionInfo().GetCloseTime().AsTime().Add(2*time.Hour - time.Minute) // in the last minute none begins
	require.Equal(t, until, d.shown(t.Name()).Horizon)
	require.Contains(t, d.ok("show", t.Name()), "\nhorizon: it can be rolled back until "+
		terminal.LocalTime(until, "2006-01-02 15:04")+" at the latest\n")
	var one tasks.Step
	require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), "one", "-o", "json")), &one))
	require.Equal(t, until, one.Horizon)

	d.ok("rollback", t.Name(), "--watch")
	require.Zero(t, d.shown(t.Name()).Horizon)
	var undone tasks.Step
	require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), "one", "-o", "json")), &undone))
	require.Zero(t, undone.Horizon)
}

// TestWhatOnlyReadsHasNoHorizon: there is nothing to roll back.
func TestWhatOnlyReadsHasNoHorizon(t *testing.T) {
	d := newDesk(t)
	const reads = "steps:\n  - {id: look, uses: fake.get, with: {key: a, value: x}}\n"
	d.ok("run", d.file("name: both\n"+reads+"  - {id: set, uses: fake.set, with: {key: a, value: x}}\n"), "--id", t.Name(), "--watch")
	d.ok("run", d.file("name: reads\n"+reads), "--id", t.Name()+"-reads", "--watch")
	step := func(id string) (s tasks.Step) {
		require.NoError(t, json.Unmarshal([]byte(d.ok("show", t.Name(), id, "-o", "json")), &s))
		return s
	}
	require.NotZero(t, step("set").Horizon)
	require.Zero(t, step("look").Horizon)
	require.Zero(t, d.shown(t.Name()+"-reads").Horizon)

	c := &tasks.Client{Client: listless{d.client}, Server: tasks.Server{Namespace: d.server.Namespace}}
	run, err := c.Describe(t.Context(), t.Name())
	require.NoError(t, err)
	one, err := c.Step(t.Context(), run, "set")
	require.NoError(t, err, "its history tells all else")
	require.Zero(t, one.Horizon)
	require.Equal(t, protocol.Done, one.State)
}

// listless is a server that cannot list.
type listless struct{ client.Client }

func (listless) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return nil, serviceerror.NewUnavailable("no list today")
}

// TestASessionThatWasRolledBackInPartGoesOnInItsHistory: only what undoes a whole task is
// unwinding.
func TestASessionThatWasRolledBackInPartGoesOnInItsHistory(t *testing.T) {
	d := newDesk(t)
	d.ok("session", "open", d.file("name: live\nsession: {}\nsteps: []\n"), "--id", t.Name())
	step := func(key string) {
		d.ok("session", "step", t.Name(), d.file("{uses: fake.set, with: {key: "+key+", value: x}}"))
	}
	step("a")
	d.ok("session", "savepoint", t.Name(), "half")
	step("b")
	d.ok("session", "rollback", t.Name(), "--to", "half")
	step("c")
	stands := func() (protocol.Phase, []protocol.StepState) {
		s := d.shown(t.Name())
		var states []protocol.StepState
		for _, v := range s.Steps {
			states = append(states, v.State)
		}
		return s.Phase, states
	}
	phase, states := stands()
	require.Equal(t, protocol.Forward, phase)
	require.Equal(t, []protocol.StepState{protocol.Done, protocol.RolledBack, protocol.Done}, states)
	d.leaveQueue()
	phase, fromHistory := stands()
	require.Equal(t, protocol.Forward, phase)
	require.Equal(t, states, fromHistory)
	require.NotContains(t, d.ok("show", t.Name()), "report of")

	d.startWorker()
	d.world.breakUndo(true)
	d.ok("cancel", t.Name())
	d.until(t.Name(), parked)
	d.leaveQueue()
	phase, _ = stands()
	require.Equal(t, protocol.Unwinding, phase)
	require.Contains(t, d.ok("show", t.Name()), "report of "+t.Name())
	d.startWorker()
	d.until(t.Name(), parked)
	d.world.breakUndo(false)
	d.ok("resolve", t.Name(), "s3", "--do", "retry", "--yes")
	require.Equal(t, statusFailed, d.do("watch", t.Name()).status)
}

func TestNoStateIsEmptyInTheJSONOfATask(t *testing.T) {
	d := newDesk(t)
	require.Equal(t, statusFailed, d.do("run", d.file(failing), "--id", t.Name(), "--watch").status)
	s := d.shown(t.Name())
	require.Equal(t, protocol.Done, s.Steps[0].State)
	require.Equal(t, protocol.StepFailed, s.Steps[1].State)

	d.leaveQueue()
	d.ok("run", d.file(twice), "--id", t.Name()+"-unread")
	require.Equal(t, protocol.NotBegun, d.shown(t.Name()+"-unread").Phase)
	require.Contains(t, d.ok("show", t.Name()+"-unread"), "not begun: no worker has taken it yet")
	d.startWorker()
	d.ok("watch", t.Name()+"-unread")
}

func TestListNamesTasks(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(twice), "--id", t.Name(), "--agent", t.Name(), "--watch")
	require.Eventually(t, func() bool { // the widths of columns depend on what else is listed
		return strings.Contains(normal(d.ok("list", "--agent", t.Name())), t.Name()+" set it twice committed ")
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
	require.Equal(t, []any{3, "steps.one.uses"}, []any{v.Problems[0].Line, v.Problems[0].Field})
	require.Zero(t, v.Steps)
}

// newImpatientDesk has a server of its own that suggests continuing as new after a few steps.
func newImpatientDesk(t *testing.T) *desk {
	server, err := devserver.Start(t.Context(),
		devserver.Options{Settings: map[string]any{"limit.historyCount.suggestContinueAsNew": 30}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	c, err := client.Dial(server.ClientOptions())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return newLoneDeskOn(t, server, c)
}

func (d *desk) hasContinued(id string) {
	d.Helper()
	started, err := d.client.GetWorkflowHistory(d.Context(), id, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
	require.NoError(d, err)
	require.NotEmpty(d, started.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(),
		"it has not continued as new")
}

// TestOutputsOfAnEarlierRunAreShown has a task continue as new between the steps of which the
// outputs are looked at.
func TestOutputsOfAnEarlierRunAreShown(t *testing.T) {
	d := newImpatientDesk(t)
	var text strings.Builder
	text.WriteString("name: long\nsteps:\n")
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprintf("s%d", i))
		fmt.Fprintf(&text, "  - {id: s%d, name: number %[1]d, uses: fake.set, with: {key: a, value: v%[1]d}}\n", i)
	}
	text.WriteString("  - {id: last, uses: fake.wait}\n")
	d.ok("run", d.file(text.String()), "--id", t.Name())
	<-d.world.waiting
	d.hasContinued(t.Name())

	requireAll := func(why string) {
		t.Helper()
		s := d.shown(t.Name())
		var order []string
		for _, v := range s.Steps {
			order = append(order, v.ID)
		}
		require.Equal(t, append(all, "last"), order, why)
		for i := range 12 {
			before := map[string]any{"before": ""}
			if i > 0 {
				before["before"] = fmt.Sprintf("v%d", i-1)
			}
			require.Equal(t, before, s.Steps[i].Outputs, "%s: step %d", why, i)
			require.Equal(t, fmt.Sprintf("number %d", i), s.Steps[i].Name, why)
		}
	}
	requireAll("its worker and its history tell them")
	require.Contains(t, d.ok("show", t.Name(), "s1"), "before")
	d.leaveQueue()
	requireAll("its history tells them")
	d.startWorker()
	d.ok("cancel", t.Name())
	require.Equal(t, statusFailed, d.do("watch", t.Name()).status)
	requireAll("it is closed")
}

// TestAStepOfAnEarlierRunThatWasRolledBackIsNotShownAsDone rolls a session back into a run that it
// has left long ago.
func TestAStepOfAnEarlierRunThatWasRolledBackIsNotShownAsDone(t *testing.T) {
	d := newImpatientDesk(t)
	d.ok("session", "open", d.file("name: live\nsession: {}\nsteps: []\n"), "--id", t.Name())
	step := func(i int) {
		d.ok("session", "step", t.Name(), d.file(fmt.Sprintf("{uses: fake.set, with: {key: k%d, value: v}}", i)))
	}
	step(1)
	d.ok("session", "savepoint", t.Name(), "early")
	for i := 2; i <= 12; i++ {
		step(i)
	}
	d.hasContinued(t.Name())
	d.ok("session", "rollback", t.Name(), "--to", "early")
	require.Empty(t, d.world.get("k2"))
	s := d.shown(t.Name())
	require.Equal(t, 1, s.Done)
	require.Equal(t, "s1", s.Steps[0].ID)
	require.Equal(t, protocol.Done, s.Steps[0].State)
	require.Equal(t, map[string]any{"before": ""}, s.Steps[0].Outputs)
	for _, v := range s.Steps[1:] {
		require.Equal(t, protocol.RolledBack, v.State, v.ID)
	}
	d.ok("session", "finish", t.Name())
}
