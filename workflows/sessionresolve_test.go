package workflows_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// lettingAgent is the document of a session whose agent decides about steps that have failed.
var lettingAgent = strings.Replace(sessionDocument, `"gone"`, `"failures": "agent", "gone"`, 1)

// askingB is a step that fails, and then asks.
const askingB = `{"id": "b", "uses": "fake.do", "with": {"path": "/wrong"}, "on_failure": "ask"}`

// openSessionOf opens the session of a document.
func (l *live) openSessionOf(document string) session.Session {
	l.startWorker()
	s, _, err := session.Open(l.Context(), l.client, session.Options{ID: l.Name(), Queue: l.queue},
		json.RawMessage(document))
	require.NoError(l, err)
	l.run = l.client.GetWorkflow(l.Context(), s.ID(), "")
	return s
}

// about makes the agent's decision about the step that an answer shows parked.
func about(t *testing.T, a protocol.Answer, do compensations.Do, with string) protocol.StepResolution {
	t.Helper()
	p := a.Steps[0].Park
	require.NotNil(t, p, "%+v", a)
	require.True(t, p.AgentDecides)
	r := protocol.StepResolution{Step: p.Step, Digest: p.Digest, Do: do, Why: "I see"}
	if with != "" {
		r.With = json.RawMessage(with)
	}
	return r
}

func requireRefusal(t *testing.T, err error, errorType, text string) {
	t.Helper()
	var refusal session.Refusal
	require.True(t, errors.As(err, &refusal), "%v", err)
	require.Equal(t, errorType, refusal.Type, refusal.Text)
	require.Contains(t, refusal.Text, text)
}

func TestTheAgentOfASessionCorrectsAStepThatFailed(t *testing.T) {
	l := newLive(t, servertest.Client(t), asking(nil))
	s := l.openSessionOf(lettingAgent)
	ctx := t.Context()
	first, err := s.Step(ctx, "one", steps("a", askingB, "c").Steps[1:]...)
	require.NoError(t, err)
	require.Equal(t, []string{"b parked", "c not-started"}, states(first))
	second, err := s.Resolve(ctx, "again", about(t, first, compensations.Retry, ""))
	require.NoError(t, err)
	require.True(t, second.Pending)
	require.Equal(t, 2, second.Steps[0].Park.Try)

	old, wrong := about(t, first, compensations.Retry, `{"path":"/right"}`), about(t, second, compensations.Retry,
		`{"pth":"/right"}`)
	_, err = s.Resolve(ctx, "", old)
	requireRefusal(t, err, protocol.NothingDecided, "is not that of the present park")
	_, err = s.Resolve(ctx, "", wrong)
	requireRefusal(t, err, protocol.NothingDecided, "did you mean path?")
	_, err = s.Resolve(ctx, "", about(t, second, compensations.Accept, ""))
	requireRefusal(t, err, protocol.NothingDecided, `"accept" is not one of retry, skip, unwind`)
	_, err = s.Resolve(ctx, "", protocol.StepResolution{Step: "x", Digest: old.Digest, Do: compensations.Retry})
	requireRefusal(t, err, protocol.NothingDecided, `"x" waits for no decision`)

	right := about(t, second, compensations.Retry, `{"path":"/right"}`)
	third, err := s.Resolve(ctx, "right", right)
	require.NoError(t, err)
	require.Equal(t, []string{"b done"}, states(third))
	require.Contains(t, third.Steps[0].Notes, "ran once")
	again, err := s.Resolve(ctx, "right", right)
	require.NoError(t, err)
	require.Equal(t, third, again, "the same request is the same decision")
	_, err = s.Resolve(ctx, "", right)
	requireRefusal(t, err, protocol.NothingDecided, `"b" waits for no decision; it is done`)
	_, err = s.Resolve(ctx, "right", wrong)
	requireRefusal(t, err, protocol.BadRequest, "asked for something else")
	whole, err := s.Await(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, []string{"b done", "c done"}, states(whole), "what needs it goes on")

	end, err := s.Finish(ctx, "")
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, end.Report.Status)
	require.Equal(t, []string{
		"1: try 1 failed and was parked: " + first.Steps[0].Error, "1: retry by the agent: I see",
		"2: try 2 failed and was parked: " +
			second.Steps[0].Error, "2: retry by the agent (changed: path): I see", "3: ran once",
	}, notesByTry(*end.Report, "b"))
	require.Equal(t, []string{"do b", "undo b", "do b", "undo b", "do b", "do c"}, l.calls())
	_, err = s.Resolve(ctx, "", right)
	requireRefusal(t, err, protocol.SessionOver, "it has ended")
}

func TestTheAgentOfASessionSkipsOrUnwinds(t *testing.T) {
	l := newLive(t, servertest.Client(t), asking(nil))
	s := l.openSessionOf(lettingAgent)
	ctx := t.Context()
	_, err := s.Step(ctx, "", steps("a").Steps...)
	require.NoError(t, err)
	parked, err := s.Step(ctx, "one", steps(askingB, "c").Steps...)
	require.NoError(t, err)
	skipped, err := s.Resolve(ctx, "", about(t, parked, compensations.Skip, ""))
	require.NoError(t, err)
	require.Equal(t, []string{"b rolled-back"}, states(skipped))
	require.False(t, skipped.Pending)
	whole, err := s.Await(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, []string{"b rolled-back", "c left-out"}, states(whole))

	l.world.mu.Lock()
	l.world.do = failing("d")
	l.world.mu.Unlock()
	parked, err = s.Step(ctx, "", steps(strings.Replace(askingB, `"b"`, `"d"`, 1)).Steps...)
	require.NoError(t, err)
	end, err := s.Resolve(ctx, "", about(t, parked, protocol.DoUnwind, ""))
	require.NoError(t, err)
	require.Equal(t, compensations.Unwound, end.Report.Status)
	require.Equal(t, parked.Steps[0].Error+"; unwind by the agent: I see", end.Report.Cause.Text)
	calls := l.calls()
	require.Equal(t, []string{"do d", "undo d", "undo a"}, calls[len(calls)-3:])
}

// What a person decides does not become the agent's, whatever the session says.
func TestWhatAPersonDecidesIsNotTheAgents(t *testing.T) {
	w := asking(nil)
	l := newLive(t, servertest.Client(t), w)
	s := l.openSession() // which does not say failures: agent
	ctx := t.Context()
	parked, err := s.Step(ctx, "one", steps(askingB).Steps...)
	require.NoError(t, err)
	p := parked.Steps[0].Park
	require.False(t, p.AgentDecides)
	_, err = s.Resolve(ctx, "", protocol.StepResolution{Step: "b", Digest: p.Digest, Do: compensations.Skip})
	requireRefusal(t, err, protocol.PersonDecides, "does not say failures: agent")
	_, err = l.ask(protocol.UpdateResolve, resolution(t, l.awaitState(hasPark), compensations.Skip))
	require.NoError(t, err)
	_, err = s.Finish(ctx, "")
	require.NoError(t, err)
}

func TestTheAgentDecidesNeitherGatesNorUndos(t *testing.T) {
	w := asking(nil)
	w.risky = true
	r := newRun(t, w)
	var gated, undoing, correction, retried *updated
	decide := func(step string, digest activities.Digest, do compensations.Do, with string) *updated {
		return r.update(protocol.UpdateResolveStep, string(do)+" "+step+with,
			protocol.StepResolution{Step: step, Digest: digest, Do: do, With: json.RawMessage(with)})
	}
	r.script(
		func() {
			correction = decide("b", r.state().Parks[0].Digest, compensations.Retry, `{"path":"/right"}`)
			retried = decide("b", r.state().Parks[0].Digest, compensations.Retry, "null")
		},
		func() {
			require.Equal(t, 2, r.state().Parks[0].Try)
			decide("b", r.state().Parks[0].Digest, compensations.Skip, "")
		},
		func() { r.update(protocol.UpdateStep, "1", steps("a")) },
		func() { gated = decide("a", r.state().Gates[0].Digest, compensations.Retry, "") },
		func() { r.decide(protocol.SignalApprove) },
		func() {
			w.undo = parkFirstUndo("a")
			r.update(protocol.UpdateRollback, "3", protocol.SessionRollback{Step: "a"})
		},
		func() {
			parked, ok := parkedUndo(r.state())
			require.True(t, ok)
			undoing = decide("a", parked.Digest, compensations.Accept, "")
			r.resolveParked(compensations.Retry)
		},
		func() { r.update(protocol.UpdateFinish, "4") },
	)
	ungated := strings.Replace(askingB, `"id"`, `"gate": "none", "id"`, 1)
	r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(strings.Replace(lettingAgent, "[]", "["+ungated+"]", 1)))
	require.True(t, r.env.IsWorkflowCompleted())
	require.ErrorContains(t, gated.refused, `"a" waits at a gate, which is for a person to decide`)
	require.ErrorContains(t, correction.refused,
		`the file of the session says "gate: none" of "b", for the parameters that are written there`)
	require.ErrorContains(t, undoing.refused, `the undo of "a" waits, and how it goes on is for a person to decide`)
	require.NoError(t, retried.refused)
	for _, u := range []*updated{gated, correction, undoing} {
		r.failsAs(u.refused, protocol.PersonDecides)
	}
	require.Equal(t, []string{"do b", "undo b", "do b", "undo b", "plan a", "do a", "undo a", "undo a"}, w.calls)
}

func parkedUndo(s protocol.State) (compensations.StepReport, bool) {
	if s.Report != nil {
		for _, r := range s.Report.Steps {
			if compensations.UndoState(r.State) == compensations.Parked {
				return r, true
			}
		}
	}
	return compensations.StepReport{}, false
}

// An agent that may decide is not waited for as a person is, and nobody is told of what it has been
// told.
func TestAnAgentThatDecidesNothingIsGone(t *testing.T) {
	r := newRun(t, asking(nil))
	var alerts alertLog
	alerts.keepThoseOf(r)
	r.script(func() { r.update(protocol.UpdateStep, "1", steps(askingB)) })
	r.runAfter(50*time.Minute, func() { require.Len(t, r.state().Parks, 1) })
	r.env.ExecuteWorkflow(protocol.AgentTaskType, json.RawMessage(lettingAgent))
	report, err := r.ended()
	require.Error(t, err)
	require.Contains(t, report.Cause.Text, "its agent has been silent")
	require.Empty(t, alerts.sent())
}
