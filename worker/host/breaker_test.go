package host_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// touchy is Stripe behind a breaker that opens at the first request that goes unanswered.
type touchy struct{ stripe.Settings }

func (s *touchy) Open(activities.Opening) (activities.World, error) {
	return stripe.New(stripe.Config{Key: func() (string, error) { return "sk_test_a_key", nil }, BaseURL: s.URL,
		BreakerTrips: 1, BreakerPause: 3 * time.Second})
}

// An API that stops answering in the middle of an undo, after its first request, is waited for in the
// open; the undo goes on where it was, and nothing is left.
func TestAnUndoThatMeetsAnOpenBreakerWaitsAndGoesOn(t *testing.T) {
	account := emulator.New(emulator.Options{})
	server, err := account.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	t.Setenv("STRIPE_KEY", "sk_test_a_key")
	p := paying{serve(t, host.Config{
		Secrets: map[string]string{"STRIPE_KEY": "env:STRIPE_KEY"},
		Worlds:  []activities.Settings{&touchy{stripe.Settings{Key: "STRIPE_KEY", URL: server.URL}}},
	}, host.Options{}), account}
	customer := func(id string) map[string]any {
		return map[string]any{"id": id, "uses": "stripe.customer.create", "with": map[string]any{"name": id}}
	}
	last := customer("last")
	last["gate"] = "ask"
	run := p.start(map[string]any{"name": "three", "steps": []any{customer("first"), customer("second"), last}})
	require.Eventually(t, func() bool { return len(p.stateOf(run.GetID()).Gates) == 1 }, waitFor, tick)
	require.Len(t, account.Live(), 2)

	var mu sync.Mutex
	var deleted []string
	account.Inject(emulator.Fault{On: emulator.Request("DELETE", "/v1/customers/*"), Do: emulator.Garble,
		Seen: func(r emulator.Received) {
			mu.Lock()
			defer mu.Unlock()
			deleted = append(deleted, r.Path)
		}})
	p.decide(run.GetID(), protocol.SignalReject, p.stateOf(run.GetID()).Gates[0])
	var undos []compensations.StepReport
	require.Eventually(t, func() bool {
		undos = undos[:0]
		if r := p.stateOf(run.GetID()).Report; r != nil {
			undos = slices.DeleteFunc(slices.Clone(r.Steps), func(s compensations.StepReport) bool { return s.State == "pending" })
		}
		return len(undos) > 0 && undos[0].State == string(compensations.Waiting)
	}, waitFor, tick)
	require.Equal(t, "last: waiting for the circuit breaker of stripe.customer.create",
		undos[0].Step+": "+undos[0].Reason)
	require.Len(t, undos, 1, "what it needs waits with it")
	mu.Lock()
	require.NotEmpty(t, deleted)
	require.Len(t, slices.Compact(deleted), 1, "only that of the last, which its undo has made to block a late request")
	mu.Unlock()
	account.Mend()

	_, err = p.end(run)
	require.Error(t, err)
	report := p.stateOf(run.GetID()).Report
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"nothing-to-undo": 1, "compensated": 2}, report.Outcomes)
	require.Empty(t, account.Live())
}
