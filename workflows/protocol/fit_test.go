package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// longGate is a gate whose change has a diff and losses that are as long as an action may make
// them.
func longGate(step string) GateView {
	items := make([]string, activities.MaxItems)
	for i := range items {
		items[i] = strings.Repeat("loss", activities.MaxItem/4)
	}
	return GateView{Step: step, Digest: "sha256:opening of " + activities.Digest(step), Change: activities.Change{
		Summary: "would do " + step, Diff: strings.Repeat("+ a line that a person reads\n", activities.MaxDiff/29),
		Digest: "sha256:change",
		Losses: items,
	}}
}

func TestAStateListsTheFirstGatesWholeAndCountsTheOthers(t *testing.T) {
	var s State
	for i := range 500 {
		s.Gates = append(s.Gates, longGate(fmt.Sprintf("s%d", i)))
		s.Parks = append(s.Parks,
			ParkView{Step: fmt.Sprintf("p%d", i), With: json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`)})
		s.Steps = append(s.Steps,
			StepView{ID: fmt.Sprintf("s%d", i), Error: strings.Repeat("e", 4000),
				Notes: []string{"a", "b", "c", strings.Repeat("n", 9000)}})
		s.Ignored = append(s.Ignored, strings.Repeat("\x01", 1000))
	}
	s.Session = &SessionView{}
	for i := range 25_000 {
		s.Session.Savepoints = append(s.Session.Savepoints, fmt.Sprintf("savepoint-%d", i))
	}
	s.Report = longReport(500)
	s.Fit()
	require.LessOrEqual(t, payload.SizeOf(s), payload.Max)
	require.Equal(t, 500, len(s.Gates)+s.MoreGates)
	require.Equal(t, 500, len(s.Parks)+s.MoreParks)
	require.Len(t, s.Gates[0].Change.Losses, activities.MaxItems)
	require.Len(t, s.Steps, 500, "texts are shortened first")
	require.Contains(t, strings.Join(s.Omitted, "\n"), "texts of steps\n")
	require.Regexp(t, `\d+ savepoints`, strings.Join(s.Omitted, "\n"))
	require.NotEmpty(t, s.Report.Steps)
}

func TestAStateOfShortPartsIsWhole(t *testing.T) {
	s := State{
		Gates: []GateView{longGate("a")}, Steps: []StepView{{ID: "a", Notes: []string{"1", "2", "3", "4"}}},
		Session: &SessionView{Savepoints: []string{"x"}, Notes: []Note{{Text: "y"}}}, Report: longReport(2),
	}
	before, err := json.Marshal(s)
	require.NoError(t, err)
	s.Fit()
	after, err := json.Marshal(s)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
}

// Escapes make a text six times as long.
func TestOneGateThatIsTooLongAloneIsShortened(t *testing.T) {
	g := longGate("a")
	g.Change.Diff = strings.Repeat(strings.Repeat("\x01", 100)+"\n", activities.MaxDiff/101)
	for i := range g.Change.Losses {
		g.Change.Losses[i] = strings.Repeat("\x01", activities.MaxItem)
	}
	s := State{Gates: []GateView{g}}
	s.Fit()
	require.LessOrEqual(t, payload.SizeOf(s), maxShownGates+maxOmitted)
	require.Equal(t, g.Digest, s.Gates[0].Digest)
	require.Contains(t, s.Gates[0].Change.Diff, "... not shown: ")
	require.NotEmpty(t, s.Omitted)
}

func longReport(steps int) *compensations.Report {
	r := compensations.Report{Status: compensations.Open, Cause: &compensations.Cause{Text: strings.Repeat("c", 20_000)}}
	for i := range steps {
		r.Steps = append(r.Steps, compensations.StepReport{
			Step: fmt.Sprintf("s%d", i), State: string(compensations.Parked), Reason: "changed since", Digest: "sha256:park",
			Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:drift",
				Diff: strings.Repeat("- a line\n", 1000)},
		})
	}
	if steps < 10 {
		r.Cause = nil
	}
	return &r
}

func TestAnAnswerSaysOfEachStepThatItWaits(t *testing.T) {
	a := Answer{Request: "many", Pending: true}
	for i := range 100 {
		gate := longGate(fmt.Sprintf("s%d", i))
		a.Steps = append(a.Steps, StepAnswer{ID: gate.Step, State: AtGate, Gate: &gate})
	}
	whole := a.Steps[7]
	a.Fit()
	require.LessOrEqual(t, payload.SizeOf(a), maxAnswer)
	require.Len(t, a.Steps, 100)
	require.True(t, longGate("s0").Change.Diff == a.Steps[0].Gate.Change.Diff, "the first is whole")
	for _, s := range a.Steps {
		require.Equal(t, longGate(s.ID).Digest, s.Gate.Digest)
	}
	require.Equal(t, []string{"changes and parameters of steps that wait, except for the first"}, a.Omitted)
	require.Len(t, whole.Gate.Change.Losses, activities.MaxItems, "what the run itself has stays whole")
}

func TestAnAnswerOfManyRowsCountsThoseItLeavesOut(t *testing.T) {
	a := Answer{Request: "redo", Phase: Forward, Undone: longReport(3000).Steps, Waiting: longReport(3000).Steps,
		Report: longReport(300)}
	for i := range 10_000 {
		s := StepAnswer{ID: fmt.Sprintf("s%d", i), Uses: "file.write", State: Done, Took: time.Second,
			Outputs: map[string]any{"id": strings.Repeat("o", 100)}}
		if i%3000 == 2999 {
			s.State, s.Error = RolledBack, strings.Repeat("no ", 1000)
		}
		a.Steps = append(a.Steps, s)
		a.WaitsFor = append(a.WaitsFor, s.ID)
	}
	a.Fit()
	require.LessOrEqual(t, payload.SizeOf(a), maxAnswer)
	count := map[StepState]int{}
	for _, s := range a.Steps {
		count[s.State]++
	}
	require.Equal(t, 3, count[RolledBack], "those that went wrong come first")
	require.NotZero(t, count[Done])
	require.Equal(t, 9997, count[Done]+a.More[string(Done)])
	require.Equal(t, 6000, len(a.Undone)+len(a.Waiting)+a.More[string(compensations.Parked)])
	require.NotNil(t, a.Report)
	require.Contains(t, a.WaitsFor[len(a.WaitsFor)-1], " more")
	require.Contains(t, a.Omitted, "steps and undos, which more counts")
}

func TestTheOutputsOfAnAnswerAreWholeWhileTheyFit(t *testing.T) {
	answer := func(steps int) Answer {
		a := Answer{}
		for i := range steps {
			a.Steps = append(a.Steps,
				StepAnswer{ID: fmt.Sprint(i), State: Done, Outputs: map[string]any{"log": strings.Repeat("x", 16_000)}})
		}
		a.Fit()
		return a
	}
	require.Len(t, answer(12).Steps[11].Outputs["log"], 16_000)
	short := answer(13)
	require.Contains(t, short.Steps[0].Outputs["log"], "\n... 13952 bytes ...\n")
	require.Equal(t, []string{"the middle of outputs"}, short.Omitted)
	hundred := answer(100)
	require.LessOrEqual(t, payload.SizeOf(hundred), maxAnswer)
	require.Len(t, hundred.Steps, 100)
}
