package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// triedTwice unwinds from c to b once. Each forward leaves a note, and so does each undo of b.
func triedTwice() *world {
	w := &world{steps: chain("a", "b", "c")}
	stepByID(w.steps, "b").Savepoint = "half"
	unwindTo(w.steps, "c", "half", 1)
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		if s == "c" {
			return activities.Result{}, errNo
		}
		return activities.Result{Notes: []string{fmt.Sprintf("left %s-%d", s, n)}}, nil
	}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		return activities.Undone{Outcome: activities.Restored, Losses: []string{fmt.Sprintf("the times of %s-%d", step, n)}},
			nil
	}
	return w
}

func TestEachTryOfAStepTellsItsOwnNotesAndLosses(t *testing.T) {
	report, err := newRun(t, triedTwice()).report()
	require.Error(t, err)
	require.Equal(t, []string{"1: left b-1", "2: left b-2"}, notesByTry(report, "b"))
	require.Equal(t, []string{"1: unwound to savepoint half, 1 of 1: CheckFailed: no"}, notesByTry(report, "c"))
	var rows []string
	for _, s := range report.Steps {
		rows = append(rows, fmt.Sprintf("%s %d %v", s.Step, s.Try, s.Losses))
	}
	require.Equal(t, []string{
		"a 0 [the times of a-1]", "b 1 [the times of b-1]", "b 2 [the times of b-2]", "c 1 [the times of c-1]",
		"c 2 [the times of c-2]",
	}, rows)
}

func TestATaskThatIsOpenTellsWhichTryItsNotesAreAbout(t *testing.T) {
	w := triedTwice()
	addGate(w.steps, "c", 24*time.Hour)
	var views []protocol.StepView
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.decide(protocol.SignalApprove) })
	r.runAfter(2*time.Hour, func() { views = r.state().Steps; r.decide(protocol.SignalReject) })
	_, err := r.report()
	require.Error(t, err)
	require.Equal(t, []any{"b", 2}, []any{views[1].ID, views[1].Try})
	require.Equal(t, []string{"left b-2"}, views[1].Notes)
	require.Equal(t, []protocol.Tried{{Try: 1, Notes: []string{"left b-1"}}}, views[1].Tried)
	require.Equal(t, []string{"in try 1: left b-1", "left b-2"}, views[1].AllNotes())
}

// A try that never came onto the ledger has no row: what there is to tell of it stands in the row
// of another, with its number.
func TestATryWithoutARowIsNamed(t *testing.T) {
	w := triedTwice()
	c := stepByID(w.steps, "c")
	c.With = json.RawMessage(`{"path": "${{ steps.b.outputs.id }}"}`)
	first := w.do
	w.do = func(ctx context.Context, s string, n int, f activities.Forward) (activities.Result, error) {
		result, err := first(ctx, s, n, f)
		if s == "b" && n == 1 {
			result.Outputs = map[string]any{"id": "7"}
		}
		return result, err
	}
	report, err := newRun(t, w).report()
	require.Error(t, err)
	notes := notesOf(report, "c")
	require.Len(t, notes, 2)
	require.Equal(t, "unwound to savepoint half, 1 of 1: CheckFailed: no", notes[0])
	require.Regexp(t, `^in try 2: .*steps\.b\.outputs\.id`, notes[1])
}
