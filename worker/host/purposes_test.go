package host_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

// paying is a worker whose steps pay at an account.
type paying struct {
	*stage
	account *emulator.Emulator
}

func newPaying(t *testing.T) paying {
	account := emulator.New(emulator.Options{})
	server, err := account.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	t.Setenv("STRIPE_KEY", "sk_test_a_key")
	return paying{serve(t, host.Config{
		Secrets: map[string]string{"STRIPE_KEY": "env:STRIPE_KEY"}, Worlds: []activities.Settings{
			&stripe.Settings{Key: "STRIPE_KEY", URL: server.URL}},
	}, host.Options{}), account}
}

// payment is a step that makes a payment intent.
func payment(id string, amount int, words string) map[string]any {
	return map[string]any{"id": id, "uses": "stripe.payment_intent.create",
		"with": map[string]any{"amount": amount, "currency": "eur", "description": words}}
}

// open opens a session of an agent.
func (p paying) open(id, agent string) session.Session {
	p.Helper()
	raw, err := json.Marshal(map[string]any{"name": "pay", "agent": agent, "session": map[string]any{}, "steps": []any{}})
	require.NoError(p, err)
	s, _, err := session.Open(p.Context(), p.Client,
		session.Options{ID: p.Name() + "-" + id, Queue: p.Name(), Agent: agent}, raw)
	require.NoError(p, err)
	return s
}

// pay has a session pay, and returns the gate at which it waits; nil if it has paid.
func (p paying) pay(s session.Session, step map[string]any) *protocol.GateView {
	p.Helper()
	raw, err := json.Marshal(step)
	require.NoError(p, err)
	answer, err := s.Step(p.Context(), "", raw)
	require.NoError(p, err)
	require.Len(p, answer.Steps, 1)
	if answer.Steps[0].Gate == nil {
		require.Equal(p, protocol.Done, answer.Steps[0].State, answer.Steps[0].Error)
	}
	return answer.Steps[0].Gate
}

func (p paying) decide(id, signal string, g protocol.GateView) {
	p.Helper()
	require.NoError(p,
		p.Client.SignalWorkflow(p.Context(), id, "", signal, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"}))
}

// payments are how many payment intents there are that were not canceled.
func (p paying) payments() int { return len(p.account.Live()) }

// An agent that pays for the same a second time, in another session or task and in other words,
// waits for a person who is shown the first one.
func TestTheSamePurposeInAnotherTaskIsAsked(t *testing.T) {
	p := newPaying(t)
	first := p.open("first", "bot")
	require.Nil(t, p.pay(first, payment("charge", 500, "order 7")))
	_, err := first.Finish(t.Context(), "")
	require.NoError(t, err)
	names := "step charge of task " + first.ID() + " is for the same, by the same agent, at "

	second := p.open("second", "bot")
	gate := p.pay(second, payment("again", 500, "the seventh order"))
	require.NotNil(t, gate)
	require.Contains(t, gate.Why, names)
	require.Contains(t, gate.Why, ": stripe.payment_intent.create with the same amount, currency, customer")
	require.Equal(t, gate.Why, gate.Change.Repeats)
	require.Equal(t, 1, p.payments(), "nothing is paid before somebody decides")

	require.Nil(t, p.pay(p.open("other", "another bot"), payment("charge", 500, "order 7")), "another agent")
	require.Nil(t, p.pay(p.open("more", "bot"), payment("charge", 501, "order 7")), "another amount")

	// A task file that a person has written is no other: gate: none was said of the payment, and not
	// of a second one.
	step := payment("monthly", 500, "order no. 7")
	step["gate"] = "none"
	file := p.start(map[string]any{"name": "a file", "agent": "bot", "steps": []any{step}})
	var asked []protocol.GateView
	require.Eventually(t, func() bool { asked = p.stateOf(file.GetID()).Gates; return len(asked) == 1 }, waitFor, tick)
	require.Contains(t, asked[0].Why, names)
	p.decide(file.GetID(), protocol.SignalReject, asked[0])
	_, err = p.end(file)
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, p.stateOf(file.GetID()).Report.Status)
	require.Equal(t, 3, p.payments())

	p.decide(second.ID(), protocol.SignalApprove, *gate)
	require.Eventually(t, func() bool { return p.payments() == 4 }, waitFor, tick, "it was approved")
	third := p.open("third", "bot")
	gate = p.pay(third, payment("charge", 500, "order seven"))
	require.NotNil(t, gate)
	require.Contains(t, gate.Why, "step again of task "+second.ID(), "the last one")
}

// What was undone, or never done, is no reason to ask.
func TestAPurposeThatWasUndoneIsNotAsked(t *testing.T) {
	p := newPaying(t)
	first := p.open("first", "bot")
	require.Nil(t, p.pay(first, payment("charge", 500, "order 7")))
	_, err := first.Rollback(t.Context(), "", protocol.SessionRollback{Step: "charge"})
	require.NoError(t, err)
	second := p.open("second", "bot")
	require.Nil(t, p.pay(second, payment("charge", 500, "the seventh order")))
	require.Equal(t, 1, p.payments())
	_, err = second.Abort(t.Context(), "", protocol.AbortRequest{})
	require.NoError(t, err)
	_, err = p.end(p.Client.GetWorkflow(t.Context(), second.ID(), ""))
	require.Error(t, err)
	require.Nil(t, p.pay(p.open("third", "bot"), payment("charge", 500, "order seven")))
	require.Equal(t, 1, p.payments())
}

// An approval that was given before the other payment was made does not cover a second one.
func TestAnApprovalCoversOnlyTheRepetitionThatItShowed(t *testing.T) {
	p := newPaying(t)
	step := payment("charge", 500, "order 7")
	step["gate"] = "ask"
	waiting := p.open("waiting", "bot")
	gate := p.pay(waiting, step)
	require.NotNil(t, gate)
	require.Empty(t, gate.Change.Repeats)
	require.Nil(t, p.pay(p.open("faster", "bot"), payment("charge", 500, "the seventh order")))
	p.decide(waiting.ID(), protocol.SignalApprove, *gate)
	var gates []protocol.GateView
	require.Eventually(t, func() bool {
		gates = p.stateOf(waiting.ID()).Gates
		return len(gates) == 1 && gates[0].Digest != gate.Digest
	}, waitFor, tick, "it is asked again")
	require.Contains(t, gates[0].Why, "step charge of task "+p.Name()+"-faster")
	require.Equal(t, 1, p.payments())
	p.decide(waiting.ID(), protocol.SignalApprove, gates[0])
	require.Eventually(t, func() bool { return p.payments() == 2 }, waitFor, tick)
}
