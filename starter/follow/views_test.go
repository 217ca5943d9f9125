package follow

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/golden"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return began.Add(d) }

// story is a task as it is seen from time to time: forward on two hosts, a gate that opens twice, a
// failure, an undo that waits for its host, one that is parked twice.
func story() []protocol.State {
	running := protocol.StepView{ID: "copy", Uses: "file.write", State: protocol.Running, Host: "build-1",
		Began: after(time.Second)}
	done := running
	done.State, done.Ended, done.Summary = protocol.Done, after(2*time.Second), "wrote 3 files"
	done.Notes = []string{"ran twice"}
	gate := protocol.StepView{ID: "apply", Uses: "terraform.apply", State: protocol.AtGate, Began: after(2 * time.Second)}
	failed := gate
	failed.State, failed.Ended, failed.Error = protocol.StepFailed, after(9*time.Second), "CheckFailed: no\nroute"
	failed.Notes = []string{"approved by eve"}
	idle := protocol.StepView{ID: "tell", Uses: "stripe.refund.create", State: protocol.NotStarted}
	cause := &compensations.Cause{Kind: compensations.Failure, Step: "apply", Text: "CheckFailed: no route"}
	opening := func(n int) []protocol.GateView {
		return []protocol.GateView{{
			Step: "apply", Digest: activities.Digest(fmt.Sprint("sha256:", n)), Opening: n, Why: "terraform.apply is risky",
			Since: after(2500 * time.Millisecond), Until: after(time.Hour),
			Change: activities.Change{Summary: "1 to add", Risk: activities.High, Strategy: activities.Compensation},
		}}
	}
	unwinding := func(apply, copied compensations.StepReport) *compensations.Report {
		apply.Step, apply.Action, copied.Step, copied.Action = "apply", "terraform.apply", "copy", "file.write"
		return &compensations.Report{Task: "t", Status: compensations.Open, Cause: cause,
			Steps: []compensations.StepReport{copied, apply}}
	}
	pending := compensations.StepReport{State: string(compensations.Pending)}
	parked := compensations.StepReport{State: string(compensations.Parked), Outcome: activities.Failed,
		Reason: "timed out", Digest: "sha256:p1"}
	again := parked
	again.Digest, again.Notes = "sha256:p2", []string{"retry by eve"}
	undone := compensations.StepReport{State: string(compensations.Settled), Outcome: activities.Restored,
		Observed: "1 destroyed", Notes: []string{"retry by eve", "retry by bob"}}
	waiting := compensations.StepReport{State: string(compensations.Waiting), Reason: "waiting for host build-1"}
	restored := compensations.StepReport{State: string(compensations.Settled), Outcome: activities.Restored,
		Observed: "as before", Took: time.Second}

	state := func(phase protocol.Phase, steps ...protocol.StepView) protocol.State {
		s := protocol.State{Task: "t", Name: "a story", Phase: phase, Steps: steps}
		if phase != protocol.Forward {
			s.Cause = cause
		}
		return s
	}
	states := []protocol.State{
		{Task: "t", Phase: protocol.Compiling},
		state(protocol.Forward, running, protocol.StepView{ID: "apply", Uses: "terraform.apply", State: protocol.NotStarted},
			idle),
		state(protocol.Forward, done, gate, idle),
		state(protocol.Forward, done, gate, idle),
		state(protocol.Unwinding, done, failed, idle),
		state(protocol.Unwinding, done, failed, idle),
		state(protocol.Unwinding, done, failed, idle),
		state(protocol.Closed, done, failed, idle),
	}
	states[2].Gates, states[3].Gates = opening(1), opening(2)
	states[3].Ignored = []string{"approve: digest 1 is not that of the present gate"}
	states[4].Report, states[5].Report, states[6].Report = unwinding(parked, pending), unwinding(again, pending),
		unwinding(undone, waiting)
	// The report of a closed task holds the notes of the forward before those of the undo.
	undone.Notes = append([]string{"approved by eve"}, undone.Notes...)
	restored.Notes = []string{"ran twice"}
	states[7].Report = unwinding(undone, restored)
	states[7].Report.Status = compensations.Unwound
	for i := 4; i < len(states); i++ {
		states[i].Ignored = states[3].Ignored
	}
	return states
}

var storyServer = tasks.Server{Address: "localhost:7233", Namespace: "default"}

func TestEachThingIsToldOnce(t *testing.T) {
	var b bytes.Buffer
	n := newNarrator(storyServer, tasks.Run{ID: "t", Started: began}, &b, &b)
	for i, s := range story() {
		n.narrate(s, after(time.Duration(i)*3*time.Second))
		n.narrate(s, after(time.Duration(i)*3*time.Second)) // nothing new
	}
	golden.Match(t, "narration", b.String())
}

func TestWhatWentByBeforeTheFirstLookIsToldInOrder(t *testing.T) {
	var b bytes.Buffer
	n := newNarrator(storyServer, tasks.Run{ID: "t", Started: began}, &b, &b)
	n.narrate(story()[7], after(time.Minute))
	golden.Match(t, "narration-late", b.String())
}

// TestEachTryIsToldOnce: the tries of a step are told as they come, and the report at the end adds
// nothing to them.
func TestEachTryIsToldOnce(t *testing.T) {
	view := func(state protocol.StepState, try int, notes ...string) protocol.StepView {
		return protocol.StepView{ID: "b", Uses: "file.write", State: state, Try: try, Notes: notes, Began: after(time.Second),
			Ended: after(2 * time.Second)}
	}
	first, second := view(protocol.Done, 0, "left 1"), view(protocol.Done, 2, "left 2")
	second.Tried = []protocol.Tried{{Try: 1, Notes: first.Notes}}
	undone := func(try int, outcome activities.Outcome, notes ...string) compensations.StepReport {
		return compensations.StepReport{Step: "b", Action: "file.write", Try: try, State: string(compensations.Settled),
			Outcome: outcome, Notes: notes}
	}
	rows := []compensations.StepReport{undone(0, activities.Restored), undone(2, activities.Nothing)}
	last := []compensations.StepReport{undone(1, activities.Restored, "left 1"),
		undone(2, activities.Nothing, "left 2", "in try 1: left 1")}
	cause := &compensations.Cause{Kind: compensations.Failure, Text: "no"}
	states := []protocol.State{
		{Phase: protocol.Forward, Steps: []protocol.StepView{first}},
		{Phase: protocol.Forward, Steps: []protocol.StepView{second}},
		{Phase: protocol.Unwinding, Cause: cause, Steps: []protocol.StepView{second},
			Report: &compensations.Report{Status: compensations.Open, Steps: rows}},
		{Phase: protocol.Closed, Cause: cause, Steps: []protocol.StepView{second},
			Report: &compensations.Report{Status: compensations.Unwound, Steps: last}},
	}
	tell := func(states ...protocol.State) string {
		var b bytes.Buffer
		n := newNarrator(storyServer, tasks.Run{ID: "t", Started: began}, &b, &b)
		for range 2 {
			for _, s := range states {
				n.narrate(s, after(3*time.Second))
			}
		}
		return b.String()
	}
	told := tell(states...)
	for _, once := range []string{" left 1\n", " left 2\n", " undo: restored\n", " undo: nothing-to-undo\n"} {
		require.Equal(t, 1, strings.Count(told, once), "%q in %s", once, told)
	}
	require.Equal(t, 2, strings.Count(told, " done\n"), told)
	require.Equal(t, 1, strings.Count(tell(states[3]), " in try 1: left 1\n"), "seen at its end only")
}

func TestTheDrawingOfEachState(t *testing.T) {
	var b bytes.Buffer
	for i, s := range story() {
		for _, line := range drawTask(tasks.Run{ID: "t", Agent: "bot", Started: began}, s,
			after(time.Duration(i)*3*time.Second), 20) {
			fmt.Fprintln(&b, line.text)
		}
		fmt.Fprintln(&b)
	}
	golden.Match(t, "drawing", b.String())
}

func TestTheStretchOfStepsThatIsDrawn(t *testing.T) {
	steps := make([]protocol.StepView, 100)
	for i := range steps {
		steps[i] = protocol.StepView{ID: fmt.Sprint(i), State: protocol.NotStarted}
		if i <= 50 {
			steps[i].State = protocol.Done
		}
	}
	for room, want := range map[int][2]int{200: {0, 100}, 100: {0, 100}, 31: {31, 61}, 2: {50, 51}, 1: {50, 51}} {
		from, to := visibleSteps(steps, nil, room)
		if [2]int{from, to} != want {
			t.Errorf("room %d: %d to %d, want %v", room, from, to, want)
		}
	}
}

func TestWhatIsDrawnBelowStepsFitsTheScreen(t *testing.T) {
	states := []protocol.State{story()[1]}
	steps := states[0].Steps
	steps[0] = protocol.StepView{ID: "read", Uses: "container.exec", State: protocol.Done, Summary: "read",
		Outputs: map[string]any{
			"stdout": "one\ntwo\nthree\nfour\n", "empty": "", "exit": 0,
		}}
	steps[1] = protocol.StepView{ID: "apply", Uses: "terraform.apply", State: protocol.Running, Began: began,
		Progress: []string{"a.b: \x1b[2Jrefreshing", "a.c: refreshing"}}
	var b bytes.Buffer
	for _, height := range []int{20, 8, 5} {
		lines := drawTask(tasks.Run{ID: "t", Started: began}, states[0], after(3*time.Second), height)
		if len(lines) > height {
			t.Errorf("%d lines in %d", len(lines), height)
		}
		for _, line := range lines {
			fmt.Fprintln(&b, line.text)
		}
		fmt.Fprintln(&b)
	}
	golden.Match(t, "below", b.String())
}

func TestALongLineIsCutAndSaysWhereAllOfItIs(t *testing.T) {
	long := `{"items": "` + strings.Repeat("é", 2000) + `"}`
	var b bytes.Buffer
	n := newNarrator(storyServer, tasks.Run{ID: "t", Started: began}, &b, &b)
	n.narrate(protocol.State{Phase: protocol.Forward, Steps: []protocol.StepView{
		{ID: "a", Uses: "x.y", State: protocol.Done, Began: began, Ended: began, Summary: "read",
			Outputs: map[string]any{"stdout": "one\n" + long + "\n"}},
		{ID: "b", Uses: "x.y", State: protocol.StepFailed, Began: began, Ended: began, Error: "CheckFailed: no\n" + long},
	}}, began)
	require.Equal(t, 2, strings.Count(b.String(), "… (all of it: starter show t "), b.String())
	require.Contains(t, b.String(), "(all of it: starter show t a)\n")
	require.Contains(t, b.String(), "            | {\"items\": \"é")
	for line := range strings.SplitSeq(b.String(), "\n") {
		require.Less(t, utf8.RuneCountInString(line), 400)
	}
}

func TestTroublesAreDrawnAboveTheSteps(t *testing.T) {
	s := story()[1]
	s.Troubles = []protocol.Trouble{{What: "plan a", Attempt: 3, Reason: "ActionFailed: no answer"}, {What: "plan b"},
		{What: "plan c"}, {What: "plan d"}}
	for height, troubles := range map[int]int{5: 1, 6: 2, 20: maxTroubles} {
		lines := drawTask(tasks.Run{ID: "t", Started: began}, s, after(time.Second), height)
		require.LessOrEqual(t, len(lines), height)
		require.Equal(t, "trouble: plan a, attempt 3: ActionFailed: no answer", lines[1].text)
		require.NotContains(t, lines[1+troubles].text, "trouble: ")
	}
}

// TestTheLinesAreInOrderOfTime: of steps that run side by side, of undos, and of what is learned
// late.
func TestTheLinesAreInOrderOfTime(t *testing.T) {
	step := func(id string, state protocol.StepState, from, to time.Duration) protocol.StepView {
		v := protocol.StepView{ID: id, Uses: "file.write", State: state, Began: after(from)}
		if to > 0 {
			v.Ended = after(to)
		}
		return v
	}
	at := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	cause := &compensations.Cause{Kind: compensations.Failure, Step: "b", Text: "CheckFailed: no"}
	failed := step("b", protocol.StepFailed, at(0.2), at(3))
	failed.Error = "CheckFailed: no\nmore"
	ended := []protocol.StepView{step("a", protocol.Done, at(0.1), at(0.9)), failed,
		step("c", protocol.Done, at(0.3), at(2))}
	undone := func(id string) compensations.StepReport {
		return compensations.StepReport{Step: id, Action: "file.write", State: string(compensations.Settled),
			Outcome: activities.Restored}
	}
	var b bytes.Buffer
	n := newNarrator(storyServer, tasks.Run{ID: "t", Started: began}, &b, &b)
	for _, look := range []struct {
		now time.Duration
		protocol.State
	}{
		{at(1), protocol.State{Phase: protocol.Forward, AwaitedHosts: []string{"far"},
			Troubles: []protocol.Trouble{{What: "c", Attempt: 2, Reason: "ActionFailed: no"}}, Steps: []protocol.StepView{
				step("a", protocol.Done, at(0.1), at(0.9)), step("b", protocol.Running, at(0.2), 0),
				step("c", protocol.NotStarted, 0, 0),
			}}},
		{at(4), protocol.State{Phase: protocol.Unwinding, Cause: cause, Steps: ended,
			Report: &compensations.Report{Status: compensations.Open,
				Steps: []compensations.StepReport{undone("a"), undone("c")}}}},
	} {
		n.narrate(look.State, after(look.now))
	}
	require.Equal(t, `     0.1s  a                file.write               started
     0.2s  b                file.write               started
     0.9s  a                file.write               done
     1.0s  waits for a worker of host far
     1.0s  trouble: c, attempt 2: ActionFailed: no
     1.0s  c                file.write               started
     2.0s  c                file.write               done
     3.0s  b                file.write               failed: CheckFailed: no
            | more
unwinding, last in first out: failed at step b: CheckFailed: no
     4.0s  c                file.write               undo: restored
     4.0s  a                file.write               undo: restored
`, b.String())
}
