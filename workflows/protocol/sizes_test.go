package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// sizes draws what leaves a workflow, of sizes about the limits.
type sizes struct{ *rand.Rand }

// upTo is a number of at most n: none, few, as many as may be, or any.
func (d sizes) upTo(n int) int {
	switch d.IntN(4) {
	case 0:
		return 0
	case 1:
		return min(n, d.IntN(4))
	case 2:
		return n
	}
	return d.IntN(n + 1)
}

// text is one of at most n bytes. Some kinds take more as JSON.
func (d sizes) text(n int) string {
	unit := []string{"a line that a person reads\n", "\x01", "é", `"`, "x"}[d.IntN(5)]
	return strings.Repeat(unit, d.upTo(n)/len(unit))
}

func (d sizes) texts(items, n int) []string {
	all := make([]string, d.upTo(items))
	for i := range all {
		all[i] = d.text(n)
	}
	return all
}

func (d sizes) change() activities.Change {
	return activities.Change{
		Summary: d.text(activities.MaxSummary), Diff: d.text(activities.MaxDiff), Undo: d.text(activities.MaxText),
		Digest: "sha256:change",
		Losses: d.texts(activities.MaxItems, activities.MaxItem), Facts: d.texts(activities.MaxItems, activities.MaxItem),
		Keys: d.texts(activities.MaxItems, activities.MaxItem), Schema: d.texts(activities.MaxItems, activities.MaxItem),
	}
}

func (d sizes) undos(n int) []compensations.StepReport {
	all := make([]compensations.StepReport, d.upTo(n))
	for i := range all {
		all[i] = compensations.StepReport{
			Step:     fmt.Sprintf("s%d", i),
			State:    string([]compensations.UndoState{compensations.Parked, compensations.Settled}[d.IntN(2)]),
			Reason:   d.text(activities.MaxText),
			Observed: d.text(activities.MaxText), Drift: &activities.Drift{Digest: "sha256:drift",
				Diff: d.text(activities.MaxDiff)}, Notes: d.texts(3, payload.MaxWhy),
		}
	}
	return all
}

func (d sizes) report() *compensations.Report {
	return &compensations.Report{Status: compensations.Open, Steps: d.undos(300), Notes: d.texts(200, payload.MaxWhy),
		Cause: &compensations.Cause{Text: d.text(50_000)}}
}

// parts are how many rows of each list are drawn: enough to go past each limit, and few enough for
// a plain run.
const parts = 120

func (d sizes) state() State {
	s := State{Ignored: d.texts(50, payload.MaxWhy),
		Session: &SessionView{Savepoints: d.texts(2000, 63), Since: d.texts(1000, payload.MaxName)}, Report: d.report()}
	for i := range d.upTo(parts) {
		id := fmt.Sprintf("s%d", i)
		s.Gates = append(s.Gates, GateView{Step: id, Digest: activities.Digest("sha256:" + id), Change: d.change()})
	}
	for i := range d.upTo(parts) {
		s.Parks = append(s.Parks,
			ParkView{Step: fmt.Sprintf("p%d", i), Reason: d.text(activities.MaxText),
				With: []byte(`"` + strings.Repeat("x", d.upTo(activities.MaxInline)) + `"`)})
	}
	for i := range d.upTo(1500) {
		s.Steps = append(s.Steps,
			StepView{ID: fmt.Sprintf("s%d", i), Summary: d.text(activities.MaxSummary), Error: d.text(activities.MaxText),
				Notes: d.texts(4, payload.MaxWhy)})
	}
	return s
}

func (d sizes) answer() Answer {
	a := Answer{Request: d.text(1000), Cause: &compensations.Cause{Text: d.text(50_000)}, Undone: d.undos(parts),
		Waiting: d.undos(parts), WaitsFor: d.texts(500, payload.MaxName), Report: d.report()}
	for i := range d.upTo(10 * parts) {
		s := StepAnswer{ID: fmt.Sprintf("s%d", i), State: Done, Summary: d.text(activities.MaxSummary),
			Notes: d.texts(4, payload.MaxWhy)}
		switch {
		case i >= parts:
		case d.IntN(2) == 0:
			s.State, s.Gate = AtGate, &GateView{Step: s.ID, Digest: activities.Digest("sha256:" + s.ID), Change: d.change()}
		default:
			s.Outputs = map[string]any{"out": d.text(activities.MaxOutputs)}
		}
		a.Steps = append(a.Steps, s)
	}
	return a
}

func TestWhatAQueryOrAnUpdateAnswersFitsWhateverItsSize(t *testing.T) {
	d := sizes{testrun.Rand(t)}
	rounds := 1
	if testrun.Deep() {
		rounds = 300
	}
	for range rounds {
		checkState(t, d.state())
		checkAnswer(t, d.answer())
	}
}

func TestAPlanAndAValidationFitWhateverTheirSizes(t *testing.T) {
	d := sizes{testrun.Rand(t)}
	var p Plan
	for i := range parts * 3 {
		change := d.change()
		p.Steps = append(p.Steps,
			PlannedStep{ID: fmt.Sprintf("s%d", i), Change: &change, Unknown: d.text(activities.MaxText)})
	}
	long := *p.Steps[0].Change
	long.Diff = strings.Repeat("+ a line that a person reads\n", activities.MaxDiff/29)
	p.Steps[0].Change = &long
	p.Fit()
	require.LessOrEqual(t, payload.SizeOf(p), payload.Max)
	require.Len(t, p.Steps, parts*3, "texts go first")
	v := Validation{Steps: 10_000}
	for i := range v.Steps {
		v.Refusals = append(v.Refusals, activities.Refusal{Step: fmt.Sprintf("s%d", i), Message: strings.Repeat("no ", 100)})
	}
	v.Fit()
	require.LessOrEqual(t, payload.SizeOf(v), payload.Max)
	require.NotEmpty(t, v.Refusals)
	require.Contains(t, v.Unseen[0], " more refusals")
}

func checkState(t *testing.T, s State) {
	before := s
	s.Fit()
	require.LessOrEqual(t, payload.SizeOf(s), payload.Max)
	require.Equal(t, len(before.Gates), len(s.Gates)+s.MoreGates)
	require.Equal(t, len(before.Parks), len(s.Parks)+s.MoreParks)
	for i, g := range s.Gates {
		require.Equal(t, before.Gates[i].Digest, g.Digest)
	}
	require.Equal(t, len(before.Gates) > 0, len(s.Gates) > 0)
	require.Equal(t, len(before.Parks) > 0, len(s.Parks) > 0)
}

func checkAnswer(t *testing.T, a Answer) {
	before := countRows(a)
	asks := slices.ContainsFunc(a.Steps, func(s StepAnswer) bool { return s.Gate != nil })
	a.Fit()
	require.LessOrEqual(t, payload.SizeOf(a), maxAnswer)
	require.Equal(t, before, countRows(a))
	require.Equal(t, asks, slices.ContainsFunc(a.Steps, func(s StepAnswer) bool { return s.Gate != nil }))
	for _, s := range a.Steps {
		if s.State == AtGate {
			require.Equal(t, activities.Digest("sha256:"+s.ID), s.Gate.Digest)
		}
	}
}

// countRows counts the rows of an answer by state, also those that it does not list.
func countRows(a Answer) map[string]int {
	count := map[string]int{}
	for state, n := range a.More {
		count[state] += n
	}
	for _, s := range a.Steps {
		count[string(s.State)]++
	}
	for _, u := range slices.Concat(a.Undone, a.Waiting) {
		count[u.State]++
	}
	return count
}

// Whatever the texts in it, a task is carried over if its ledger is not larger than room lets it
// become.
func TestACarryWhoseLedgerHasRoomFitsWhateverItsTexts(t *testing.T) {
	d := sizes{testrun.Rand(t)}
	rounds := 1
	if testrun.Deep() {
		rounds = 30
	}
	for range rounds {
		c := Carry{Version: CarryVersion, Steps: map[string]StepCarry{}, Session: &SessionCarry{}}
		n := 1 + d.upTo(50)
		for i := range n {
			id := fmt.Sprintf("s%d", i)
			c.Saga.Entries = append(c.Saga.Entries, activities.Entry{
				Version: 1, Seq: i + 1, Step: id, Action: "fake.do", Token: activities.NewToken("run", id, 1),
				Params: []byte(`"` + incompressibleText(d.Rand, MaxLedger(n)/n*9/8) + `"`),
			})
		}
		size, err := packed.Size(bareCarry(c))
		require.NoError(t, err)
		require.Less(t, size, MaxLedger(n))
		for i := range d.upTo(20) {
			id := fmt.Sprintf("g%d", i)
			c.Steps[id] = StepCarry{Notes: d.texts(10, payload.MaxWhy),
				Gate: &GateCarry{View: GateView{Step: id, Digest: "sha256:opening", Change: d.change()}}}
		}
		c.Saga.Past.Steps, c.Notes = d.undos(20), d.texts(200, payload.MaxWhy)
		c.Rollbacks = []RollbackCarry{{Undone: d.undos(20)}}
		for range d.upTo(5) {
			r := RequestCarry{Over: map[string]StepAnswer{}}
			for i := range d.upTo(30) {
				r.Over[fmt.Sprintf("s%d", i)] = StepAnswer{
					ID: fmt.Sprintf("s%d", i), State: Done, Notes: d.texts(10, payload.MaxWhy),
					Outputs: map[string]any{"out": incompressibleText(d.Rand, d.upTo(activities.MaxOutputs-100))},
				}
			}
			c.Session.Requests = append(c.Session.Requests, r)
		}
		c.Session.CutOver()
		raw, err := c.Fit()
		require.NoError(t, err)
		require.Less(t, len(raw), 2_000_000)
		require.Len(t, decodeCarry(t, raw).Saga.Entries, n)
	}
}
