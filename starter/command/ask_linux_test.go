package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
)

const gateQuestion = "approve step two? y or n, and why: "

func TestAGateIsApprovedWhereItsTaskIsWatched(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 60)
	end := s.run(d, "run", d.file(gated), "--id", t.Name(), "--watch")
	s.shows(gateQuestion)
	require.Contains(t, s.screen(), `change    set b from "" to "y"`, "the details stand above the question")
	for _, nothing := range []string{"maybe", "", "n"} { // a rejection needs its reason
		before := strings.Count(s.screen(), "nothing was sent: type y")
		s.types(nothing)
		require.Eventually(t, func() bool { return strings.Count(s.screen(), "nothing was sent: type y") > before }, waitFor,
			tick)
	}
	require.Len(t, d.state(t.Name()).Gates, 1)
	s.types("y looks right")
	require.Equal(t, statusOK, <-end)
	s.shows("to take it back")
	require.Contains(t, s.screen(), "approved: step two of task "+t.Name()+" goes on")
	require.Contains(t, normal(s.screen()), "two: approved by ME: looks right")
	require.Equal(t, [2]string{"x", "y"}, d.values())
}

func TestAGateIsRejectedWhereItsTaskIsWatched(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	s := newTTY(t, 100, 60)
	end := s.run(d, "watch", t.Name())
	s.shows(gateQuestion)
	s.types("n not on a Friday")
	require.Equal(t, statusFailed, <-end)
	s.shows("starter: task " + t.Name())
	require.Contains(t, s.screen(), "rejected: task "+t.Name()+" unwinds")
	require.Contains(t, normal(s.screen()), "cause: rejected at step two: step two was rejected by ME: not on a Friday")
	require.Equal(t, [2]string{}, d.values())
}

func TestAGateThatIsDecidedElsewhereTakesItsQuestionAway(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 60)
	end := s.run(d, "run", d.file(gated), "--id", t.Name(), "--watch")
	s.shows(gateQuestion)
	d.ok("approve", t.Name(), "two", "--yes")
	require.Equal(t, statusOK, <-end)
	s.shows("to take it back")
	require.Contains(t, s.screen(), "step two was decided elsewhere")
}

func TestWhoLeavesAQuestionDecidesNothing(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 60)
	end := s.run(d, "run", d.file(gated), "--id", t.Name(), "--watch", "--timeout", "3s")
	s.shows(gateQuestion)
	require.Equal(t, statusTimedOut, <-end)
	require.Len(t, d.state(t.Name()).Gates, 1)
	require.Empty(t, d.state(t.Name()).Ignored)
	d.ok("cancel", t.Name())
}

func TestAParkIsResolvedWhereItsTaskIsWatched(t *testing.T) {
	d := newDesk(t)
	d.world.breakUndo(true)
	d.ok("run", d.file(failing), "--id", t.Name())
	s := newTTY(t, 100, 60)
	end := s.run(d, "watch", t.Name())
	s.shows("resolve the undo of step two? retry, skip or accept, and why: ")
	require.Contains(t, s.screen(), "because   ", "the reason stands above the question")
	s.types("force") // there is no drift
	s.shows("nothing was sent: type retry, skip or accept, and a reason after it if you like")
	s.types("retry") // and it fails again
	require.Eventually(t, func() bool { return strings.Count(s.screen(), "resolve the undo of step two? ") == 3 }, waitFor,
		tick)
	s.types("accept it is right so")
	s.shows("resolve the undo of step one? ")
	d.world.breakUndo(false)
	s.types("retry")
	require.Equal(t, statusFailed, <-end)
	s.shows("starter: task " + t.Name())
	require.Contains(t, s.screen(), "resolved: accept of step two of task "+t.Name())
	require.Contains(t, normal(s.screen()), "two: accept by ME: it is right so")
}

func TestDriftIsForcedWhereItsTaskIsWatched(t *testing.T) {
	d := newDesk(t)
	d.ok("run", d.file(gated), "--id", t.Name())
	d.until(t.Name(), atGate)
	d.world.set("a", "mine")
	s := newTTY(t, 100, 60)
	end := s.run(d, "watch", t.Name())
	s.shows(gateQuestion)
	s.types("n no")
	s.shows("resolve the undo of step one? retry, force, skip or accept, and why: ")
	require.Contains(t, s.screen(), "  | +mine")
	s.types("force old news")
	require.Equal(t, statusFailed, <-end)
	s.shows("starter: task " + t.Name())
	require.Contains(t, normal(s.screen()), "one: force by ME: old news")
	require.Empty(t, d.world.get("a"))
}

func TestTheLiveViewShowsOutputsAndHowFarAStepHasCome(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 40)
	end := s.show(d, "run", d.file(`name: long work
steps:
  - {id: one, uses: fake.set, with: {key: a, value: x}}
  - {id: two, uses: fake.set, with: {key: a, value: y}}
  - {id: work, uses: fake.wait}
`), "--id", t.Name(), "--watch")
	s.shows("▸ work")
	s.shows("     | copied 2 of 9")
	require.Contains(t, s.screen(), "     before: x", "what two has returned")
	require.NotContains(t, s.screen(), secretValue)
	s.shows("     | with *** at hand")
	history := d.client.GetWorkflowHistory(t.Context(), t.Name(), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		require.NotContains(t, event.String(), "copied 2 of 9")
	}
	d.ok("cancel", t.Name())
	require.Equal(t, statusFailed, <-end)
}

func TestPlansAndUndosTellHowFarTheyHaveCome(t *testing.T) {
	d := newDesk(t)
	s := newTTY(t, 100, 60)
	end := s.run(d, "run", d.file(`name: slow work
steps:
  - {id: work, uses: fake.slow, with: {key: a, value: x}, gate: ask}
`), "--id", t.Name(), "--watch")
	s.shows("     | read 2 of 9")
	require.Regexp(t, `work +fake.slow +planning +\S+ +read 2 of 9`, d.ok("show", t.Name()))
	<-d.world.slow
	s.shows("approve step work? y or n, and why: ")
	s.types("n no")
	s.shows("     | put back 2 of 9")
	require.Regexp(t, `now +put back 2 of 9`, d.ok("show", t.Name(), "work"))
	<-d.world.slow
	require.Equal(t, statusFailed, <-end)
}
