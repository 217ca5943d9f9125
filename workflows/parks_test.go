package workflows_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// asking builds c on b and d on nothing but a. b asks when it fails, which it does unless its path
// is right.
func asking(tries *[]activities.Forward) *world {
	w := &world{steps: chain("a", "b", "c", "d")}
	stepByID(w.steps, "d").Needs = []string{"a"}
	onFailure(w.steps, "b", task.FailAsk)
	stepByID(w.steps, "b").Retry.Attempts = 1
	stepByID(w.steps, "b").With = json.RawMessage(`{"path":"/wrong"}`)
	stepByID(w.steps, "b").Keys = []string{"fake:/wrong"}
	w.do = func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		if s != "b" {
			return activities.Result{}, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if tries != nil {
			*tries = append(*tries, f)
		}
		if string(f.Step.With) == `{"path":"/right"}` {
			return activities.Result{Notes: []string{"ran once"}}, nil
		}
		return activities.Result{}, errNo
	}
	return w
}

func hasPark(s protocol.State) bool { return len(s.Parks) == 1 }

// resolution decides about the only parked step.
func resolution(t *testing.T, s protocol.State, do compensations.Do) protocol.Resolution {
	t.Helper()
	require.Len(t, s.Parks, 1)
	p := s.Parks[0]
	return protocol.Resolution{Resolution: compensations.Resolution{Step: p.Step, Digest: p.Digest, Do: do, Who: "ann",
		Why: "I looked"}}
}

// resolve decides about the only parked step.
func (r *run) resolve(do compensations.Do, with string) {
	d := resolution(r.T, r.state(), do)
	if with != "" {
		d.With = json.RawMessage(with)
	}
	r.env.SignalWorkflow(compensations.SignalResolve, d)
}

func requireAlertOfB(t *testing.T, alerts *alertLog) {
	t.Helper()
	sent := alerts.sent()
	require.Len(t, sent, 1)
	require.Equal(t, []string{"b", "parked", "CheckFailed: no"},
		[]string{sent[0].Step, string(sent[0].State), sent[0].Reason})
	require.NotEmpty(t, sent[0].Digest)
}

var triedOnce = []string{"do a", "do b", "do d", "undo b"}

func TestAStepThatFailsForGoodWaitsForAPersonAndTheRestGoesOn(t *testing.T) {
	r := newRun(t, asking(nil))
	var alerts alertLog
	alerts.keepThoseOf(r)
	r.runAfter(time.Hour, func() {
		s := r.state()
		require.Equal(t, protocol.Forward, s.Phase)
		require.Len(t, s.Parks, 1)
		p := s.Parks[0]
		require.NotEmpty(t, p.Digest)
		require.NotEmpty(t, p.Token)
		require.Equal(t, protocol.ParkView{
			Step: "b", Uses: "fake.do", Digest: p.Digest, Token: p.Token, Try: 1, Reason: "CheckFailed: no",
			With: json.RawMessage(`{"path":"/wrong"}`), Since: p.Since,
			Ways: []compensations.Do{compensations.Retry, compensations.Skip, protocol.DoUnwind},
		}, p)
		var states []protocol.StepState
		for _, v := range s.Steps {
			states = append(states, v.State)
		}
		require.Equal(t, []protocol.StepState{protocol.Done, protocol.StepParked, protocol.NotStarted, protocol.Done}, states)
		require.Equal(t, triedOnce, sortRange(r.world.calls, 1, 3))
		r.resolve(compensations.Skip, "")
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, triedOnce, sortRange(r.world.calls, 1, 3))
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"a done ", "b settled restored", "c left-out ", "d done "}, outcomes(report))
	require.Equal(t, []string{"try 1 failed and was parked: CheckFailed: no", "skip by ann: I looked"},
		notesOf(report, "b"))
	require.Equal(t, []string{"left out: it needs b"}, notesOf(report, "c"))
	require.Empty(t, report.Notes)
	requireAlertOfB(t, &alerts)
}

func TestAParkedStepIsCorrectedAndRunsAgainUnderANewToken(t *testing.T) {
	var tries []activities.Forward
	r := newRun(t, asking(&tries))
	r.runAfter(time.Hour, func() { r.resolve(compensations.Retry, "") })
	var first, second activities.Digest
	r.runAfter(30*time.Minute, func() { first = r.state().Parks[0].Digest })
	r.runAfter(2*time.Hour, func() {
		second = r.state().Parks[0].Digest
		require.Equal(t, 2, r.state().Parks[0].Try)
		r.resolve(compensations.Retry, `{"path":"/right"}`)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.NotEqual(t, first, second, "each try is decided about by itself")
	require.Equal(t, append(slices.Clone(triedOnce), "do b", "undo b", "do b", "do c"), sortRange(r.world.calls, 1, 3))
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, []string{"a done ", "b settled restored", "b settled restored", "b done ", "c done ", "d done "},
		outcomes(report))
	require.Equal(t, []string{
		"1: try 1 failed and was parked: CheckFailed: no", "1: retry by ann: I looked",
		"2: try 2 failed and was parked: CheckFailed: no", "2: retry by ann (changed: path): I looked", "3: ran once",
	}, notesByTry(report, "b"))
	require.Len(t, tries, 3)
	var tokens []string
	for _, f := range tries {
		tokens = append(tokens, f.Entry.Token)
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(tokens))), 3)
	require.Equal(t, []string{"fake:/right"}, tries[2].Entry.Keys)
	require.Equal(t, []bool{false, false, true},
		[]bool{tries[0].Entry.Corrected, tries[1].Entry.Corrected, tries[2].Entry.Corrected})
}

func TestAParkedStepUnwindsTheTask(t *testing.T) {
	r := newRun(t, asking(nil))
	r.runAfter(time.Hour, func() { r.resolve(protocol.DoUnwind, "") })
	report, err := r.report()
	r.failsAs(err, protocol.TaskFailed)
	require.Equal(t, append(slices.Clone(triedOnce), "undo d", "undo a"), sortRange(r.world.calls, 1, 3))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, "CheckFailed: no; unwind by ann: I looked", report.Cause.Text)
	require.Equal(t, "b", report.Cause.Step)
}

func TestATaskThatEndsWhileAStepIsParkedUnwinds(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(*run)
		kind compensations.CauseKind
	}{
		"canceled": {func(r *run) { r.runAfter(time.Hour, r.env.CancelWorkflow) }, compensations.Canceled},
		"too late": {func(r *run) { r.world.deadline = time.Hour }, compensations.Deadline},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, asking(nil))
			end.do(r)
			report, err := r.report()
			require.Error(t, err)
			require.Equal(t, end.kind, report.Cause.Kind)
			require.Equal(t, append(slices.Clone(triedOnce), "undo d", "undo a"), sortRange(r.world.calls, 1, 3))
			require.Equal(t, compensations.Unwound, report.Status)
			require.Equal(t, []string{"try 1 failed and was parked: CheckFailed: no"}, notesOf(report, "b"))
		})
	}
}

func TestADecisionThatDoesNotFitAParkedStepDecidesNothing(t *testing.T) {
	w := asking(nil)
	w.steps = append(w.steps, chain("e")...)
	stepByID(w.steps, "e").Needs, stepByID(w.steps, "e").Keys = []string{"a"}, []string{"fake:/later"}
	stepByID(w.steps, "e").Gate = task.Gate{Mode: task.GateAsk, Limit: 24 * time.Hour}
	stepByID(w.steps, "c").Keys, stepByID(w.steps, "d").Keys = []string{"fake:/wrong"}, []string{"fake:/done"}
	r := newRun(t, w)
	send := func(change func(*protocol.Resolution)) {
		d := resolution(t, r.state(), compensations.Retry)
		change(&d)
		r.env.SignalWorkflow(compensations.SignalResolve, d)
	}
	r.runAfter(time.Hour, func() {
		send(func(d *protocol.Resolution) { d.Digest = "sha256:of another try" })
		send(func(d *protocol.Resolution) { d.Do = compensations.Force })
		send(func(d *protocol.Resolution) { d.Do, d.With = compensations.Skip, json.RawMessage(`{"path":"/right"}`) })
		send(func(d *protocol.Resolution) { d.Step = "a" })
		send(func(d *protocol.Resolution) { d.Step, d.With = "a", json.RawMessage(`{}`) })
		r.env.SignalWorkflow(compensations.SignalResolve, "nonsense")
	})
	r.runAfter(2*time.Hour, func() { r.resolve(compensations.Retry, `{"pth":"/right"}`) })
	r.runAfter(3*time.Hour, func() { r.resolve(compensations.Retry, `{"from":"${{ steps.c.outputs.id }}"}`) })
	r.runAfter(4*time.Hour, func() { r.resolve(compensations.Retry, `{"path":"/later/x"}`) })
	r.runAfter(5*time.Hour, func() {
		require.Equal(t, 1, w.count["do b"])
		send(func(*protocol.Resolution) {})                                                  // the first of two decides
		send(func(d *protocol.Resolution) { d.With = json.RawMessage(`{"path":"/right"}`) }) // the second does not
	})
	r.runAfter(6*time.Hour, func() {
		r.resolve(compensations.Retry, `{"path":"/done"}`)
		r.decide(protocol.SignalApprove)
	})
	r.runAfter(7*time.Hour, func() { r.resolve(compensations.Retry, `{"path":"/right"}`) })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Len(t, report.Notes, 7)
	for i, part := range []string{
		"is not that of the present park of step \"b\"", `do: "force" is not one of retry, skip, unwind`,
		"with: only retry takes other parameters, not skip",
		`no undo of step "a" waits for a person`, `with: step "a" is not parked after a failure`, "the payload is not",
		`step "b" is not parked after a failure`,
	} {
		require.Contains(t, report.Notes[i], part)
	}
	var refused []string
	for _, note := range notesOf(report, "b") {
		if len(note) > 12 && note[:12] == "retry by ann" && note[12:20] == " decided" {
			refused = append(refused, note)
		}
	}
	require.Len(t, refused, 3)
	require.Contains(t, refused[0], "with.pth: unknown parameter; did you mean path?")
	require.Contains(t, refused[1], "refers to step c, which is not done")
	require.Contains(t, refused[2], "touches what step e touches, which is at-gate, and does not wait for this one")
}

func TestACorrectedStepIsUndoneBeforeWhatItsNewParametersBuildOn(t *testing.T) {
	var tries []activities.Forward
	w := asking(&tries)
	stepByID(w.steps, "d").Keys = []string{"fake:/right"}
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.resolve(compensations.Retry, `{"path":"/right"}`) })
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"a", "d"}, tries[1].Entry.Needs)
}

func TestTheGateOfACorrectedStepAsksAnew(t *testing.T) {
	w := asking(nil)
	addGate(w.steps, "b", 24*time.Hour)
	r := newRun(t, w)
	var first protocol.GateView
	r.runAfter(time.Hour, func() { first = r.state().Gates[0]; r.decide(protocol.SignalApprove) })
	r.runAfter(2*time.Hour, func() { r.resolve(compensations.Retry, `{"path":"/right"}`) })
	r.runAfter(3*time.Hour, func() {
		second := r.state().Gates[0]
		require.NotEqual(t, first.Digest, second.Digest)
		require.Equal(t, 1, w.count["do b"])
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "b", Digest: first.Digest})
	})
	r.runAfter(4*time.Hour, func() { require.Equal(t, 1, w.count["do b"]); r.decide(protocol.SignalApprove) })
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do d", "plan b", "do b", "undo b", "plan b", "do b", "do c"},
		sortRange(w.calls, 1, 3))
}

func TestARejectedStepDoesNotAsk(t *testing.T) {
	w := asking(nil)
	addGate(w.steps, "b", 24*time.Hour)
	r := newRun(t, w)
	r.runAfter(time.Hour, func() { r.decide(protocol.SignalReject) })
	_, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
}

func TestNothingRunsAgainOnTopOfWhatWasNotUndone(t *testing.T) {
	w := asking(nil)
	w.undo = parkFirstUndo("b")
	r := newRun(t, w)
	r.runAfter(time.Hour, func() {
		require.Empty(t, r.state().Parks, "first its undo must be decided")
		for _, s := range r.state().Report.Steps {
			if s.State == string(compensations.Parked) {
				r.env.SignalWorkflow(compensations.SignalResolve,
					compensations.Resolution{Step: s.Step, Digest: s.Digest, Do: compensations.Skip})
			}
		}
	})
	r.runAfter(2*time.Hour, func() {
		require.Equal(t, []compensations.Do{compensations.Skip, protocol.DoUnwind}, r.state().Parks[0].Ways)
		r.resolve(compensations.Retry, "")
	})
	r.runAfter(3*time.Hour, func() { r.resolve(compensations.Skip, "") })
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, 1, w.count["do b"])
	require.Contains(t, report.Notes[0],
		"is still there, because its undo was skipped: it cannot run again; skip or unwind")
}

func TestAParkedStepWhoseNeedWasSkippedIsLeftOut(t *testing.T) {
	w := &world{steps: chain("a", "b"), do: failFirstCalls(map[string]int{"b": 1})}
	stepByID(w.steps, "a").Savepoint = "start"
	w.steps = append(w.steps, chain("c")...)
	unwindTo(w.steps, "c", "start", 1)
	onFailure(w.steps, "a", task.FailAsk)
	onFailure(w.steps, "b", task.FailAsk)
	stepByID(w.steps, "c").Retry = task.Retry{Attempts: 2, Backoff: time.Hour, Max: time.Hour}
	w.do = func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == "b", s == "a" && n == 2:
			return activities.Result{}, errNo
		case s == "c" && n == 1:
			return activities.Result{}, errAgain
		case s == "c" && n == 2:
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	r.runAfter(2*time.Hour, func() {
		require.Len(t, r.state().Parks, 2)
		for _, p := range r.state().Parks {
			do := map[string]compensations.Do{"a": compensations.Skip, "b": compensations.Retry}[p.Step]
			r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: p.Step, Digest: p.Digest, Do: do})
		}
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, 1, w.count["do b"])
}

// continueAsNew has the run continue as new at a moment at which nothing else happens.
func (r *run) continueAsNew(at time.Duration) {
	r.runAfter(at, func() {
		r.env.SetContinueAsNewSuggested(true)
		r.env.SignalWorkflow(compensations.SignalResolve, "of no use but to wake it")
	})
}

func TestAParkedStepStaysParkedAcrossRuns(t *testing.T) {
	for _, atTheLastMoment := range []bool{false, true} {
		var before protocol.ParkView
		var alerts alertLog
		l := &chained{T: t, world: asking(nil)}
		l.in = func(n int, r *run) {
			alerts.keepThoseOf(r)
			switch n {
			case 1:
				r.runAfter(30*time.Second, func() { before = r.state().Parks[0] })
				r.continueAsNew(time.Minute)
			case 2:
				if !atTheLastMoment {
					r.runAfter(time.Hour, func() {
						after := r.state().Parks[0]
						require.True(t, before.Since.Equal(after.Since))
						before.Since = after.Since
						require.Equal(t, before, after)
						r.resolve(compensations.Retry, `{"path":"/right"}`)
					})
				}
			}
		}
		if atTheLastMoment {
			l.pass = func(c *protocol.Carry) { // a signal that arrived with the last workflow task
				p := c.Steps["b"].Park
				require.Nil(t, p.Decision)
				p.Decision = &protocol.Resolution{
					Resolution: compensations.Resolution{Step: "b", Digest: p.View.Digest, Do: compensations.Retry, Who: "ann",
						Why: "I looked"}, With: json.RawMessage(`{"path":"/right"}`),
				}
			}
		}
		report, err := l.report()
		require.NoError(t, err)
		require.Equal(t, 2, l.runs)
		require.Equal(t, append(slices.Clone(triedOnce), "do b", "do c"), sortRange(l.world.calls, 1, 3))
		require.Equal(t,
			[]string{"1: try 1 failed and was parked: CheckFailed: no", "1: retry by ann (changed: path): I looked",
				"2: ran once"}, notesByTry(report, "b"))
		requireAlertOfB(t, &alerts)
	}
}

func TestACorrectionOutlivesItsRun(t *testing.T) {
	w := asking(nil)
	addGate(w.steps, "c", time.Hour)
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		if n == 1 {
			r.runAfter(30*time.Second, func() { r.resolve(compensations.Retry, `{"path":"/right"}`) })
			r.continueAsNew(time.Minute)
		}
		r.runAfter(10*time.Minute, func() { r.decide(protocol.SignalApprove) })
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, compensations.Committed, report.Status)
}

func TestAnUpdateResolvesAParkedStep(t *testing.T) {
	l := startLive(t, asking(nil))
	l.awaitCalls("do d", 1)
	d := resolution(t, l.awaitState(hasPark), compensations.Retry)
	for _, refused := range []func(protocol.Resolution) protocol.Resolution{
		func(d protocol.Resolution) protocol.Resolution { d.Digest = "sha256:of another"; return d },
		func(d protocol.Resolution) protocol.Resolution { d.Do = compensations.Accept; return d },
		func(d protocol.Resolution) protocol.Resolution {
			d.With = json.RawMessage(`{"pth":"/right"}`)
			return d
		},
	} {
		_, err := l.ask(protocol.UpdateResolve, refused(d))
		requireType(t, err, protocol.NothingDecided)
	}
	type answered struct {
		protocol.DecisionAnswer
		error
	}
	answers := make(chan answered, 2)
	for range 2 { // two at once: one decides
		go func() {
			a, err := l.ask(protocol.UpdateResolve, d)
			answers <- answered{a, err}
		}()
	}
	one, two := <-answers, <-answers
	if one.error != nil {
		one, two = two, one
	}
	require.NoError(t, one.error)
	require.Equal(t, "b", one.Step)
	requireType(t, two.error, protocol.NothingDecided)

	d = resolution(t, l.awaitState(func(s protocol.State) bool { return hasPark(s) && s.Parks[0].Try == 2 }),
		compensations.Retry)
	d.With = json.RawMessage(`{"path":"/right"}`)
	answer, err := l.ask(protocol.UpdateResolve, d)
	require.NoError(t, err)
	require.Equal(t, protocol.Forward, answer.Phase)
	require.Contains(t, []protocol.StepState{protocol.NotStarted, protocol.Running, protocol.Done}, answer.State)
	_, err = l.report()
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(triedOnce), "do b", "undo b", "do b", "do c"), sortRange(l.calls(), 1, 3))
}

func TestATaskThatWasTerminatedWhileAStepIsParkedIsRecovered(t *testing.T) {
	l := startLive(t, asking(nil))
	l.awaitCalls("do d", 1)
	l.awaitState(hasPark)
	l.awaitState(func(s protocol.State) bool { return s.Done == 2 })
	l.terminate(l.run.GetID())
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, append(slices.Clone(triedOnce), "undo d", "undo a"), sortRange(l.calls(), 1, 3))
}

func TestATaskThatWasResetWhileAStepIsParkedUnwinds(t *testing.T) {
	l := startLive(t, asking(nil))
	l.awaitCalls("do d", 1)
	l.awaitState(hasPark)
	l.awaitState(func(s protocol.State) bool { return s.Done == 2 })
	l.resetTo(-1)
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.WasReset, report.Cause.Kind)
	require.Equal(t, append(slices.Clone(triedOnce), "undo d", "undo a"), sortRange(l.calls(), 1, 3))
}

// Another worker, which knows the task from its history only, goes on where the first one stopped.
func TestAnotherWorkerTakesTheDecisionAboutAParkedStep(t *testing.T) {
	l := newLive(t, servertest.Client(t), asking(nil))
	stop := l.startWorker()
	l.start()
	l.awaitCalls("do d", 1)
	d := resolution(t, l.awaitState(hasPark), compensations.Retry)
	stop()
	d.With = json.RawMessage(`{"path":"/right"}`)
	l.sendSignal(compensations.SignalResolve, d)
	l.startWorker()
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
	require.Equal(t, append(slices.Clone(triedOnce), "do b", "do c"), sortRange(l.calls(), 1, 3))
}

func TestACorrectedTaskIsRolledBackAndNotRedone(t *testing.T) {
	l := startLive(t, asking(nil))
	d := resolution(t, l.awaitState(hasPark), compensations.Retry)
	d.With = json.RawMessage(`{"path":"/right"}`)
	l.sendSignal(compensations.SignalResolve, d)
	report := l.awaitReport(l.rollback(""))
	require.Equal(t, compensations.Unwound, report.Status)
	back, err := l.server().FindRollback(t.Context(), l.run.GetID())
	require.NoError(t, err)
	redo, err := l.server().Redo(t.Context(), back, "eve", converter.GetDefaultDataConverter())
	require.NoError(t, err)
	err = l.client.GetWorkflow(t.Context(), redo.WorkflowID, "").Get(t.Context(), nil)
	require.ErrorContains(t, err, "step b of task "+l.run.GetID()+" ran with other parameters than its document has")
}
