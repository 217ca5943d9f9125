package workflows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/packed"
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
		Summary: d.text(activities.MaxSummary), Diff: d.text(activities.MaxDiff), Undo: d.text(activities.MaxText), Digest: "sha256:change",
		Losses: d.texts(activities.MaxItems, activities.MaxItem), Facts: d.texts(activities.MaxItems, activities.MaxItem),
		Keys: d.texts(activities.MaxItems, activities.MaxItem), Schema: d.texts(activities.MaxItems, activities.MaxItem),
	}
}

func (d sizes) undos(n int) []compensations.StepReport {
	all := make([]compensations.StepReport, d.upTo(n))
	for i := range all {
		all[i] = compensations.StepReport{
			Step: fmt.Sprintf("s%d", i), State: string([]compensations.UndoState{compensations.Parked, compensations.Settled}[d.IntN(2)]), Reason: d.text(activities.MaxText),
			Observed: d.text(activities.MaxText), Drift: &activities.Drift{Digest: "sha256:drift", Diff: d.text(activities.MaxDiff)}, Notes: d.texts(3, maxWhy),
		}
	}
	return all
}

func (d sizes) report() *compensations.Report {
	return &compensations.Report{Status: compensations.Open, Steps: d.undos(300), Notes: d.texts(200, maxWhy), Cause: &compensations.Cause{Text: d.text(50_000)}}
}

// parts are how many rows of each list are drawn: enough to go past each limit, and few enough for a plain run.
const parts = 120

func (d sizes) state() State {
	s := State{Ignored: d.texts(50, maxWhy), Session: &SessionView{Savepoints: d.texts(2000, 63), Since: d.texts(maxSince, maxName)}, Report: d.report()}
	for i := range d.upTo(parts) {
		id := fmt.Sprintf("s%d", i)
		s.Gates = append(s.Gates, GateView{Step: id, Digest: activities.Digest("sha256:" + id), Change: d.change()})
	}
	for i := range d.upTo(parts) {
		s.Parks = append(s.Parks, ParkView{Step: fmt.Sprintf("p%d", i), Reason: d.text(activities.MaxText), With: []byte(`"` + strings.Repeat("x", d.upTo(activities.MaxInline)) + `"`)})
	}
	for i := range d.upTo(1500) {
		s.Steps = append(s.Steps, StepView{ID: fmt.Sprintf("s%d", i), Summary: d.text(activities.MaxSummary), Error: d.text(activities.MaxText), Notes: d.texts(4, maxWhy)})
	}
	return s
}

func (d sizes) answer() Answer {
	a := Answer{Request: d.text(1000), Cause: &compensations.Cause{Text: d.text(50_000)}, Undone: d.undos(parts), Waiting: d.undos(parts), WaitsFor: d.texts(500, maxName), Report: d.report()}
	for i := range d.upTo(10 * parts) {
		s := StepAnswer{ID: fmt.Sprintf("s%d", i), State: Done, Summary: d.text(activities.MaxSummary), Notes: d.texts(4, maxWhy)}
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
		p.Steps = append(p.Steps, PlannedStep{ID: fmt.Sprintf("s%d", i), Change: &change, Unknown: d.text(activities.MaxText)})
	}
	long := *p.Steps[0].Change
	long.Diff = strings.Repeat("+ a line that a person reads\n", activities.MaxDiff/29)
	p.Steps[0].Change = &long
	p.fit()
	require.LessOrEqual(t, sizeOf(p), maxPayload)
	require.Len(t, p.Steps, parts*3, "texts go first")
	v := Validation{Steps: 10_000}
	for i := range v.Steps {
		v.Refusals = append(v.Refusals, activities.Refusal{Step: fmt.Sprintf("s%d", i), Message: strings.Repeat("no ", 100)})
	}
	v.fit()
	require.LessOrEqual(t, sizeOf(v), maxPayload)
	require.NotEmpty(t, v.Refusals)
	require.Contains(t, v.Unseen[0], " more refusals")
}

func TestManyAlertsAreSentInParts(t *testing.T) {
	const n = 400
	var undos []compensations.StepReport
	for i := range n {
		undos = append(undos, compensations.StepReport{Step: fmt.Sprintf("s%d", i), Reason: strings.Repeat("x", activities.MaxText)})
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	sent := map[string]int{}
	var mu sync.Mutex
	env.RegisterActivityWithOptions(func(_ context.Context, alerts []Alert) error {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range alerts {
			sent[a.Step]++
		}
		if len(alerts) > maxBatch {
			return fmt.Errorf("%d are sent at once", len(alerts))
		}
		if size := sizeOf(alerts); size > maxAlerted+len("[]") {
			return fmt.Errorf("it is sent %d at once", size)
		}
		return nil
	}, activity.RegisterOptions{Name: AlertActivity})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		a := alerts{isLeaving: func() bool { return false }, changed: func() {}, patience: newPatience(0)}
		var failed error
		a.note = func(note string) { failed = errors.New(note) }
		a.send(ctx, undos)
		if len(a.waiting) != n {
			return errors.New("it does not return at once")
		}
		return cmp.Or(workflow.Await(ctx, func() bool { return a.untold() == 0 }), failed)
	})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, sent, n)
	for step, times := range sent {
		require.Equal(t, 1, times, step)
	}
}

func checkState(t *testing.T, s State) {
	before := s
	s.fit()
	require.LessOrEqual(t, sizeOf(s), maxPayload)
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
	a.fit()
	require.LessOrEqual(t, sizeOf(a), maxAnswer)
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

// Whatever the texts in it, a task is carried over if its ledger is not larger than room lets it become.
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
				Params: []byte(`"` + incompressibleText(d.Rand, maxLedger(n)/n*9/8) + `"`),
			})
		}
		size, err := packed.Size(bareCarry(c))
		require.NoError(t, err)
		require.Less(t, size, maxLedger(n))
		for i := range d.upTo(20) {
			id := fmt.Sprintf("g%d", i)
			c.Steps[id] = StepCarry{Notes: d.texts(10, maxWhy), Gate: &GateCarry{View: GateView{Step: id, Digest: "sha256:opening", Change: d.change()}}}
		}
		c.Saga.Past.Steps, c.Notes = d.undos(20), d.texts(200, maxWhy)
		c.Rollbacks = []RollbackCarry{{Undone: d.undos(20)}}
		for range d.upTo(5) {
			r := RequestCarry{Over: map[string]StepAnswer{}}
			for i := range d.upTo(30) {
				r.Over[fmt.Sprintf("s%d", i)] = StepAnswer{
					ID: fmt.Sprintf("s%d", i), State: Done, Notes: d.texts(10, maxWhy), Outputs: map[string]any{"out": incompressibleText(d.Rand, d.upTo(activities.MaxOutputs-100))},
				}
			}
			c.Session.Requests = append(c.Session.Requests, r)
		}
		c.Session.cutOver()
		raw, err := c.fit()
		require.NoError(t, err)
		require.Less(t, len(raw), 2_000_000)
		require.Len(t, decodeCarry(t, raw).Saga.Entries, n)
	}
}
