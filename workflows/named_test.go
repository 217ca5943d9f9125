package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// entries keeps the entry of each step's forward.
func (w *world) entries() map[string]activities.Entry {
	kept := map[string]activities.Entry{}
	w.do = func(_ context.Context, step string, _ int, f activities.Forward) (activities.Result, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		kept[step] = f.Entry
		return activities.Result{Outputs: map[string]any{"id": "/" + step}}, nil
	}
	return kept
}

// Steps of a session that call one thing by two names are ordered, also in another request, and
// whoever has named it.
func TestStepsOfASessionOnOneThingAreOrderedWhateverTheyCallIt(t *testing.T) {
	changes := func(names ...string) activities.Touched { return activities.Touched{Changes: names} }
	reads := func(names ...string) activities.Touched { return activities.Touched{Reads: names} }
	for name, c := range map[string]struct {
		touched map[string]activities.Touched // on the compiler's own host
		asked   map[string]activities.Touched // elsewhere
		want    []string                      // what the second step needs
	}{
		"one name": {touched: map[string]activities.Touched{"a": changes("file:/x"),
			"b": changes("file:/x")}, want: []string{"a"}},
		"a folder": {touched: map[string]activities.Touched{"a": changes("file:/x/y"),
			"b": changes("file:/x")}, want: []string{"a"}},
		"what the other reads": {touched: map[string]activities.Touched{"a": reads("file:/x"),
			"b": changes("file:/x")}, want: []string{"a"}},
		"what the other writes": {touched: map[string]activities.Touched{"a": changes("file:/x"),
			"b": reads("file:/x")}, want: []string{"a"}},
		"two readers": {touched: map[string]activities.Touched{"a": reads("file:/x"),
			"b": reads("file:/x")}},
		"two things": {touched: map[string]activities.Touched{"a": changes("file:/x"),
			"b": changes("file:/y")}},
		"asked of another host": {asked: map[string]activities.Touched{"a": changes("file:/x"),
			"b": changes("file:/x")}, want: []string{"a"}},
		"of which one does not answer": {asked: map[string]activities.Touched{"a": {}, "b": changes("file:/x")}},
	} {
		for _, requests := range []string{"one request", "two requests"} {
			t.Run(name+", "+requests, func(t *testing.T) {
				w := &world{touched: c.touched}
				kept := w.entries()
				for id := range c.asked {
					w.unnamed = append(w.unnamed, id)
				}
				w.preflight = func(r protocol.PreflightRequest) (protocol.Preflight, error) {
					var seen protocol.Preflight
					for _, s := range r.Steps {
						touched := c.asked[s.Step.ID]
						touched.Step = s.Step.ID
						seen.Touched = append(seen.Touched, touched)
					}
					return seen, nil
				}
				a, b := `{"id": "a", "uses": "fake.do", "needs": [], "with": {"path": "/a"}}`,
					`{"id": "b", "uses": "fake.do", "needs": [], "with": {"path": "/b"}}`
				r := newRun(t, w)
				script := []func(){func() { r.update(protocol.UpdateStep, "1", steps(a, b)) }}
				if requests == "two requests" {
					script = []func(){func() { r.update(protocol.UpdateStep, "1", steps(a)) },
						func() { r.update(protocol.UpdateStep, "2", steps(b)) }}
				}
				r.script(append(script, func() { r.update(protocol.UpdateFinish, "3") })...)
				r.session()
				require.Len(t, kept, 2)
				require.Empty(t, kept["a"].Needs)
				require.Equal(t, c.want, kept["b"].Needs)
			})
		}
	}
}

// late makes b name what it touches only when a has run.
func late(ids ...string) []task.Step {
	all := chain(ids...)
	b := stepByID(all, "b")
	b.With, b.NamedLate, b.Preflights = json.RawMessage(`{"path": "${{ steps.a.outputs.id }}"}`), true, true
	return all
}

// namesLate answers with the names of what b touches.
func namesLate(r protocol.PreflightRequest) (protocol.Preflight, error) {
	if !r.Late {
		return protocol.Preflight{}, nil
	}
	return protocol.Preflight{Touched: []activities.Touched{{
		Step: r.Steps[0].Step.ID, Keys: []string{"fake:/a"}, Changes: []string{"fake:/a", "file:/real"},
		Reads: []string{"file:/other"},
	}}}, nil
}

// What a step touches that depends on another one's output is in its entry before its forward is
// scheduled.
func TestAStepIsNamedWhenItsParametersAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		preflight func(protocol.PreflightRequest) (protocol.Preflight, error)
		want      activities.Entry
	}{
		"it is named": {namesLate,
			activities.Entry{Keys: []string{"fake:/a"}, Changes: []string{"file:/real"}, Reads: []string{"file:/other"}}},
		"its host does not say": {func(protocol.PreflightRequest) (protocol.Preflight, error) {
			return protocol.Preflight{}, errors.New("no")
		}, activities.Entry{}},
		"its host knows nothing": {func(protocol.PreflightRequest) (protocol.Preflight, error) {
			return protocol.Preflight{},
				nil
		}, activities.Entry{}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			w := &world{steps: late("a", "b", "c")}
			w.preflight = func(r protocol.PreflightRequest) (protocol.Preflight, error) {
				if r.Late {
					asked = append(asked, string(r.Steps[0].Step.With))
				}
				return c.preflight(r)
			}
			kept := w.entries()
			_, err := newRun(t, w).report()
			require.NoError(t, err)
			require.Equal(t, []string{"preflight b", "do a", "preflight b", "do b", "do c"}, w.calls)
			require.Equal(t, []string{`{"path":"/a"}`}, asked)
			require.Equal(t, c.want, activities.Entry{Keys: kept["b"].Keys, Changes: kept["b"].Changes, Reads: kept["b"].Reads})
		})
	}
}

// A step that is being named has not begun: the task that ends meanwhile undoes what was done
// before, and not it.
func TestATaskThatEndsWhileAStepIsNamed(t *testing.T) {
	w := &world{steps: late("a", "b")}
	r := newRun(t, w)
	w.preflight = func(q protocol.PreflightRequest) (protocol.Preflight, error) {
		if q.Late {
			r.env.CancelWorkflow()
		}
		return namesLate(q)
	}
	w.entries()
	report, err := r.report()
	require.Error(t, err)
	require.Equal(t, []string{"preflight b", "do a", "preflight b", "undo a"}, w.calls)
	require.Equal(t, compensations.Unwound, report.Status)
}

// The agent of a session takes a step back that is being named: it is left out, and never runs.
func TestAStepIsTakenBackWhileItIsNamed(t *testing.T) {
	w := &world{}
	w.entries()
	r := newRun(t, w)
	w.preflight = func(q protocol.PreflightRequest) (protocol.Preflight, error) {
		r.update(protocol.UpdateRollback, "3", protocol.SessionRollback{Step: "b"})
		return namesLate(q)
	}
	w.late = []string{"b"}
	var step, end *updated
	r.script(
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() {
			step = r.update(protocol.UpdateStep, "2",
				steps(`{"id": "b", "uses": "fake.do", "with": {"path": "${{ steps.a.outputs.id }}"}}`))
		},
		func() { end = r.update(protocol.UpdateFinish, "4") },
	)
	r.session()
	require.Equal(t, []string{"do a", "preflight b"}, w.calls)
	require.Equal(t, []string{"b left-out"}, states(step.answer))
	require.Equal(t, compensations.Committed, end.answer.Report.Status)
}

// The steps of a redo have the names that their hosts give them now.
func TestStepsOfARedoAreNamed(t *testing.T) {
	w := &world{steps: preflighted(chain("a", "b"), "a", "b")}
	stepByID(w.steps, "b").Needs = nil
	w.preflight = namesOfOne
	l := startLive(t, w)
	back := l.rollback("")
	l.awaitReport(back)
	kept := w.entries()
	_, err := l.redo(back.WorkflowID)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, kept["b"].Needs)
	require.Equal(t, []string{"file:/one"}, kept["b"].Changes)
}

// namesOfOne says that all steps touch one thing.
func namesOfOne(r protocol.PreflightRequest) (protocol.Preflight, error) {
	var seen protocol.Preflight
	for _, s := range r.Steps {
		seen.Touched = append(seen.Touched, activities.Touched{Step: s.Step.ID, Changes: []string{"file:/one"}})
	}
	return seen, nil
}

// redoNamed rolls a task back and redoes it.
func redoNamed(l *live) string {
	back := l.rollback("")
	l.awaitReport(back)
	found, err := l.server().FindRollback(l.Context(), back.WorkflowID)
	require.NoError(l, err)
	redo, err := l.server().Redo(l.Context(), found, "eve", converter.GetDefaultDataConverter())
	require.NoError(l, err)
	return redo.WorkflowID
}
