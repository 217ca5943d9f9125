package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// editable has b ask, between a and c.
func editable(ran *[]activities.Forward) *world {
	w := &world{steps: addGate(chain("a", "b", "c"), "b", 24*time.Hour)}
	stepByID(w.steps, "b").With = json.RawMessage(`{"path":"/wrong"}`)
	stepByID(w.steps, "b").Keys = []string{"fake:/wrong"}
	w.do = func(_ context.Context, step string, _ int, f activities.Forward) (activities.Result, error) {
		if step == "b" && ran != nil {
			*ran = append(*ran, f)
		}
		return activities.Result{}, nil
	}
	return w
}

// edit gives the step at a gate other parameters.
func edit(g protocol.GateView, with string) protocol.Resolution {
	return protocol.Resolution{Resolution: compensations.Resolution{Step: g.Step, Digest: g.Digest, Do: protocol.DoEdit,
		Who: "ann", Why: "it has moved"}, With: json.RawMessage(with)}
}

func (r *run) edit(with string) {
	g := r.state().Gates
	require.Len(r, g, 1)
	r.env.SignalWorkflow(compensations.SignalResolve, edit(g[0], with))
}

const editedNote = `edited by ann: path from "/wrong" to "/right": it has moved`

func TestAnEditedStepIsPlannedAnewAndAsksAnew(t *testing.T) {
	var ran []activities.Forward
	r := newRun(t, editable(&ran))
	var alerts alertLog
	alerts.keepThoseOf(r)
	var first, second protocol.GateView
	r.runAfter(time.Hour, func() { first = r.state().Gates[0]; r.edit(`{"path":"/right"}`) })
	r.runAfter(2*time.Hour, func() {
		second = r.state().Gates[0]
		require.Equal(t, editedNote, second.Edited)
		require.Equal(t, []any{1, "the task file asks"}, []any{second.Opening, second.Why})
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "b", Digest: first.Digest})
	})
	r.runAfter(3*time.Hour, func() { require.Empty(t, ran); r.decide(protocol.SignalApprove) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b", "plan b", "do b", "do c"}, r.world.calls)
	require.NotEqual(t, first.Token, second.Token)
	require.NotEqual(t, first.Digest, second.Digest)
	require.Len(t, ran, 1)
	require.Equal(t, []any{second.Token, `{"path":"/right"}`, []string{"fake:/right"}, true},
		[]any{ran[0].Entry.Token, string(ran[0].Step.With), ran[0].Entry.Keys, ran[0].Entry.Corrected})
	require.Equal(t, []string{"1: " + editedNote, "2: approved by ann: I looked"}, notesByTry(report, "b"))
	require.Len(t, report.Notes, 1, "the approval of what was there before")
	require.Len(t, alerts.sent(), 2)
}

func TestEveryEndingAfterAnEditUnwinds(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(*run)
		kind compensations.CauseKind
	}{
		"rejected": {func(r *run) { r.decide(protocol.SignalReject) }, compensations.Rejected},
		"canceled": {func(r *run) { r.env.CancelWorkflow() }, compensations.Canceled},
		"lapsed":   {func(*run) {}, compensations.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, editable(nil))
			r.runAfter(time.Hour, func() { r.edit(`{"path":"/right"}`) })
			r.runAfter(2*time.Hour, func() { end.do(r) })
			report, err := r.report()
			require.Error(t, err)
			require.Equal(t, end.kind, report.Cause.Kind)
			require.Equal(t, []string{"do a", "plan b", "undo b", "plan b", "undo b", "undo a"}, r.world.calls)
			require.Equal(t, compensations.Unwound, report.Status)
			require.Contains(t, notesByTry(report, "b"), "1: "+editedNote)
		})
	}
}

func TestATaskThatIsCanceledWhileItIsEditedUnwindsOnce(t *testing.T) {
	w := editable(nil)
	w.undo = parkFirstUndo("b")
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.edit(`{"path":"/right"}`) })
	r.runAfter(2*time.Hour, func() {
		require.Equal(t, protocol.Planning, r.state().Steps[1].State)
		r.env.CancelWorkflow()
	})
	r.runAfter(3*time.Hour, func() {
		for _, s := range r.state().Report.Steps {
			if s.State == string(compensations.Parked) {
				r.env.SignalWorkflow(compensations.SignalResolve,
					compensations.Resolution{Step: s.Step, Digest: s.Digest, Do: compensations.Retry})
			}
		}
	})
	_, err := r.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo b", "undo a"}, w.calls)
}

func TestNothingIsPlannedOnTopOfATryThatWasNotUndone(t *testing.T) {
	w := editable(nil)
	w.undo = parkFirstUndo("b")
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.edit(`{"path":"/right"}`) })
	r.runAfter(2*time.Hour, func() {
		for _, s := range r.state().Report.Steps {
			if s.State == string(compensations.Parked) {
				r.env.SignalWorkflow(compensations.SignalResolve,
					compensations.Resolution{Step: s.Step, Digest: s.Digest, Do: compensations.Skip})
			}
		}
	})
	r.runAfter(3*time.Hour, func() {
		require.Equal(t, []compensations.Do{compensations.Skip, protocol.DoUnwind}, r.state().Parks[0].Ways)
		r.resolve(compensations.Skip, "")
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b"}, w.calls)
	require.Contains(t, notesOf(report, "b")[1], "try 1 failed and was parked: it was edited, and what it had left behind")
}

func TestAnEditThatDoesNotFitDecidesNothing(t *testing.T) {
	w := editable(nil)
	w.steps = append(w.steps, chain("d")...)
	stepByID(w.steps, "d").Keys, stepByID(w.steps, "d").Needs = []string{"fake:/later"}, []string{"c"}
	stepByID(w.steps, "c").Needs = []string{"a"}
	stepByID(w.steps, "c").Gate = task.Gate{Mode: task.GateAsk, Limit: 24 * time.Hour}
	r := newRun(t, w)
	send := func(change func(*protocol.Resolution)) {
		d := edit(r.state().Gates[0], `{"path":"/right"}`)
		change(&d)
		r.env.SignalWorkflow(compensations.SignalResolve, d)
	}
	with := func(text string) func(*protocol.Resolution) {
		return func(d *protocol.Resolution) { d.With = json.RawMessage(text) }
	}
	r.runAfter(time.Hour, func() {
		send(func(d *protocol.Resolution) { d.Digest = "sha256:of another opening" })
		send(func(d *protocol.Resolution) { d.Step = "a" })
		send(func(d *protocol.Resolution) { d.Step = "nowhere" })
		send(with(""))
	})
	for i, text := range []string{`{"pth":"/right"}`, `{"path":"/wrong"}`, `{"from":"${{ steps.c.outputs.id }}"}`,
		`{"path":"/later/x"}`, `{"path":"${{ secrets.OTHER }}"}`} {
		r.runAfter(time.Duration(i+2)*time.Hour, func() { send(with(text)) })
	}
	r.runAfter(10*time.Hour, func() {
		for _, g := range r.state().Gates {
			r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: g.Step, Digest: g.Digest})
		}
		send(func(*protocol.Resolution) {}) // the approvals are handled before it
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, 1, w.count["plan b"])
	for i, part := range []string{"is not that of the present gate of step \"b\"", `step "a" is not at a gate`,
		`there is no step "nowhere"`, `with: edit takes the new parameters of step "b"`,
		`step "b" is not at a gate`} {
		require.Contains(t, report.Notes[i], part)
	}
	notes := notesOf(report, "b")
	require.Len(t, notes, 6)
	for i, part := range []string{"with.pth: unknown parameter; did you mean path?", "these are the parameters",
		"refers to step c, which is not done", "touches what step d touches, which is not-started",
		"secret OTHER is none that the task gives step b", "approved by somebody"} {
		require.Contains(t, notes[i], part)
		require.Equal(t, i < 5, strings.HasPrefix(notes[i], "edit by ann decided nothing: "))
	}
}

// What decides nothing cannot fill the history: the last such decisions are told, and the others
// counted, through all runs.
func TestOnlyTheLastRefusedEditsAreTold(t *testing.T) {
	l := &chained{T: t, world: editable(nil)}
	l.in = func(n int, r *run) {
		bad := func(from, to int) {
			for i := from; i <= to; i++ {
				r.runAfter(time.Duration(i)*time.Minute, func() { r.edit(fmt.Sprintf(`{"pth%d":"/right"}`, i)) })
			}
		}
		if n == 1 {
			bad(1, 22)
			r.continueAsNew(time.Hour)
			return
		}
		bad(23, 27)
		r.runAfter(2*time.Hour, func() { r.decide(protocol.SignalApprove) })
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	notes := notesOf(report, "b")
	require.Len(t, notes, 22)
	require.Equal(t, "7 earlier decisions about it decided nothing", notes[0])
	for i, note := range notes[1:21] {
		require.Contains(t, note, fmt.Sprintf("steps.b.with.pth%d: unknown parameter; known are", i+8))
	}
	require.Equal(t, "approved by ann: I looked", notes[21])
}

// A later step that waits for the edited one, if only through another, keeps its place behind it.
func TestAnEditMayTouchWhatAStepThatWaitsForItTouches(t *testing.T) {
	w := editable(nil)
	w.steps = append(w.steps, chain("d")...)
	stepByID(w.steps, "c").Keys, stepByID(w.steps, "d").Keys = []string{"fake:/between"}, []string{"fake:/later"}
	stepByID(w.steps, "d").Needs = []string{"c"}
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.edit(`{"path":"/later"}`) })
	r.runAfter(2*time.Hour, func() { r.decide(protocol.SignalApprove) })
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b", "plan b", "do b", "do c", "do d"}, w.calls)
}

func TestAnEditOutlivesItsRun(t *testing.T) {
	var ran []activities.Forward
	l := &chained{T: t, world: editable(&ran)}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(30*time.Second, func() { r.edit(`{"path":"/right"}`) })
			r.continueAsNew(time.Minute)
			return
		}
		r.runAfter(time.Hour, func() {
			require.Equal(t, editedNote, r.state().Gates[0].Edited)
			r.decide(protocol.SignalApprove)
		})
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, `{"path":"/right"}`, string(ran[0].Step.With))
	require.Equal(t, []string{"1: " + editedNote, "2: approved by ann: I looked"}, notesByTry(report, "b"))
}

func TestAnUpdateEditsAndAnswersOnceThatIsDecided(t *testing.T) {
	l := startLive(t, editable(nil))
	g := l.awaitState(atGate).Gates[0]
	_, err := l.ask(protocol.UpdateResolve, edit(g, `{"pth":"/right"}`))
	requireType(t, err, protocol.NothingDecided)
	require.ErrorContains(t, err, "did you mean path?")
	answer, err := l.ask(protocol.UpdateResolve, edit(g, `{"path":"/right"}`))
	require.NoError(t, err)
	require.Equal(t, "b", answer.Step)
	again := l.awaitState(func(s protocol.State) bool { return atGate(s) && s.Gates[0].Edited != "" }).Gates[0]
	_, err = l.ask(protocol.UpdateApprove, protocol.Decision{Step: "b", Digest: g.Digest})
	requireType(t, err, protocol.NothingDecided)
	_, err = l.ask(protocol.UpdateApprove, protocol.Decision{Step: "b", Digest: again.Digest, Who: "ann"})
	require.NoError(t, err)
	_, err = l.report()
	require.NoError(t, err)
}

func TestADecisionWhileAnEditIsCheckedStands(t *testing.T) {
	for name, c := range map[string]struct {
		update string
		calls  []string
	}{
		"approved": {protocol.UpdateApprove, []string{"do a", "plan b", "do b", "do c"}},
		"rejected": {protocol.UpdateReject, []string{"do a", "plan b", "undo b", "undo a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var ran []activities.Forward
			w := editable(&ran)
			begun, letGo := make(chan struct{}), make(chan struct{})
			w.compiling = func() { close(begun); <-letGo }
			l := startLive(t, w)
			g := l.awaitState(atGate).Gates[0]
			l.sendSignal(compensations.SignalResolve, edit(g, `{"path":"/right"}`))
			<-begun
			_, err := l.ask(c.update, protocol.Decision{Step: "b", Digest: g.Digest, Who: "eve"})
			close(letGo)
			require.NoError(t, err)
			report, _ := l.report()
			require.Equal(t, c.calls, l.calls())
			require.Contains(t, notesOf(report, "b"),
				`edit by ann decided nothing: the gate of step "b" was decided meanwhile`)
			for _, f := range ran {
				require.Equal(t, []any{g.Token, `{"path":"/wrong"}`, false},
					[]any{f.Entry.Token, string(f.Step.With), f.Entry.Corrected})
			}
		})
	}
}

func TestAnEditOutlivesItsRunInTheMiddleOfItsUndo(t *testing.T) {
	var ran []activities.Forward
	w := editable(&ran)
	w.undo = parkFirstUndo("b")
	var old protocol.GateView
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(30*time.Second, func() { old = r.state().Gates[0]; r.edit(`{"path":"/right"}`) })
			r.continueAsNew(time.Minute)
			return
		}
		r.runAfter(time.Hour, func() {
			s := r.state()
			require.Equal(t, protocol.Planning, s.Steps[len(s.Steps)-2].State)
			r.resolveParked(compensations.Retry)
		})
		r.runAfter(2*time.Hour, func() {
			r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "b", Digest: old.Digest})
		})
		r.runAfter(3*time.Hour, func() {
			require.Empty(t, ran)
			require.Equal(t, editedNote, r.state().Gates[0].Edited)
			r.decide(protocol.SignalApprove)
		})
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo b", "plan b", "do b", "do c"}, w.calls)
	require.Equal(t, []any{`{"path":"/right"}`, true}, []any{string(ran[0].Step.With), ran[0].Entry.Corrected})
	require.NotEqual(t, old.Token, ran[0].Entry.Token)
	require.Equal(t, []string{"1: " + editedNote, "1: retry by eve", "2: approved by ann: I looked"},
		notesByTry(report, "b"))
}

// What touches nothing does not need itself once it may touch anything.
func TestAStepThatTouchedNothingIsEdited(t *testing.T) {
	w := editable(nil)
	stepByID(w.steps, "b").Keys = []string{}
	w.do = func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		return activities.Result{Outputs: map[string]any{"id": "/x"}}, nil
	}
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.edit(`{"path":"${{ steps.a.outputs.id }}"}`) })
	r.runAfter(2*time.Hour, func() { r.decide(protocol.SignalApprove) })
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b", "plan b", "do b", "do c"}, w.calls)
}

// editInASession has a session's step b ask, and edits it; its undo waits for a person.
func editInASession(t *testing.T, then ...func(*run)) *run {
	w := &world{undo: parkFirstUndo("b")}
	r := newRun(t, w)
	all := []func(){
		func() {
			r.update(protocol.UpdateStep, "1", steps("a",
				`{"id": "b", "uses": "fake.do", "with": {"path": "/wrong"}, "gate": {"mode": "ask", "timeout": "5h"}}`))
		},
		func() { r.edit(`{"path":"/right"}`) },
	}
	for _, do := range then {
		all = append(all, func() { do(r) })
	}
	r.script(append(all, func() { r.update(protocol.UpdateFinish, "last") })...)
	r.session()
	return r
}

func TestAStepThatIsTakenBackWhileItIsEditedDoesNotBeginAgain(t *testing.T) {
	r := editInASession(t,
		func(r *run) { r.update(protocol.UpdateRollback, "2", protocol.SessionRollback{Step: "b"}) },
		func(r *run) { r.resolveParked(compensations.Retry) },
		func(r *run) { require.Empty(t, r.state().Gates) },
	)
	report, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo b"}, r.world.calls)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestAStepThatIsAddedWhileAnotherIsEditedWaitsForItsNewParameters(t *testing.T) {
	r := editInASession(t,
		func(r *run) {
			r.update(protocol.UpdateStep, "2",
				steps(`{"id": "d", "uses": "fake.do", "with": {"path": "/right/d"}, "needs": []}`))
		},
		func(r *run) { r.resolveParked(compensations.Retry) },
		func(r *run) { r.decide(protocol.SignalApprove) },
	)
	_, err := r.ended()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo b", "plan b", "do b", "do d"}, r.world.calls)
}

func TestATaskThatIsTerminatedAtAnEditedGateIsRecovered(t *testing.T) {
	l := startLive(t, editable(nil))
	_, err := l.ask(protocol.UpdateResolve, edit(l.awaitState(atGate).Gates[0], `{"path":"/right"}`))
	require.NoError(t, err)
	l.awaitState(func(s protocol.State) bool { return atGate(s) && s.Gates[0].Edited != "" })
	l.terminate(l.run.GetID())
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"do a", "plan b", "undo b", "plan b", "undo b", "undo a"}, l.calls())
}
