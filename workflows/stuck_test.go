package workflows_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// noise is a text of about so many bytes when it is compressed.
func noise(r *rand.Rand, bytes int) string {
	raw := make([]byte, bytes)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// fillCarry makes a carry so large that so many bytes are left, about.
func fillCarry(t *testing.T, c *protocol.Carry, left int) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, leaves := range []int{30_000, left} {
		raw, err := json.Marshal(c)
		require.NoError(t, err)
		size := len(raw)
		if size > packed.Max { // it is compressed, and encoded after that
			size = size * 3 / 4
		}
		c.Order = append(c.Order, noise(r, (packed.Max-leaves-size)*99/100))
	}
}

// almostFull is a session whose second run was handed about as much as can be. then says what comes
// in that run.
func almostFull(t *testing.T, w *world, then func(r *run)) *chained {
	w.intent = []string{"from"}
	l := &chained{T: t, world: w, document: sessionDocument}
	l.in = func(n int, r *run) {
		// packing is slow under the race detector
		switch n {
		case 1:
			r.script(func() {
				r.update(protocol.UpdateStep, "1",
					steps("a", fmt.Sprintf(`{"id": "big", "uses": "fake.do", "with": {"from": %q}}`,
						noise(rand.New(rand.NewPCG(3, 4)), 40_000))))
			})
			r.continueAsNew(2 * time.Minute)
		case 2:
			then(r)
		}
	}
	l.pass = func(c *protocol.Carry) {
		if l.runs == 1 {
			c.Session.Written = nil // it is left out where it does not fit
			fillCarry(t, c, 3_000)
		}
	}
	return l
}

// sendUseless sends signals that decide nothing, of which a session keeps the reasons: nobody can
// refuse them.
func (r *run) sendUseless() {
	texts := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: noise(texts, 400)})
	}
}

func TestASessionThatCannotBeCarriedOverSaysSoAndGoesOnWhenAPartIsRolledBack(t *testing.T) {
	var full, place, refused, back *updated
	var stuck, after protocol.State
	var alerts alertLog
	l := almostFull(t, &world{}, func(r *run) {
		alerts.keepThoseOf(r)
		r.script(
			func() { full = r.update(protocol.UpdateStep, "2", steps("b")) },
			func() { place = r.mark("here") },
			r.sendUseless,
			func() { r.env.SetContinueAsNewSuggested(true); r.sendUseless() },
			func() { stuck = r.state() },
			func() { refused = r.update(protocol.UpdateStep, "3", steps("c")) },
			func() {
				back = r.update(protocol.UpdateRollback, "4", protocol.SessionRollback{Step: "big"})
			},
		)
	})
	in := l.in
	l.in = func(n int, r *run) {
		in(n, r)
		if n == 3 {
			r.script(func() { after = r.state() }, func() { r.update(protocol.UpdateFinish, "5") })
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 3, l.runs)
	l.last.failsAs(full.err, protocol.BadRequest)
	require.Regexp(t,
		`steps: up to \d+ bytes more, but what the session carries has 99\d{4} bytes compressed and can have \d+: .* roll back a part`, full.err.Error())
	l.last.failsAs(place.err, protocol.BadRequest)
	require.Contains(t, stuck.Stuck, "what the next run would need is too large: it has 100")
	require.Contains(t, stuck.Stuck, "roll back a part of it, or cancel it")
	require.Equal(t, protocol.Forward, stuck.Phase)
	l.last.failsAs(refused.refused, protocol.SessionBusy)
	require.NoError(t, back.refused)
	require.NoError(t, back.err)
	require.Empty(t, after.Stuck)
	require.Equal(t, compensations.Committed, report.Status)
	require.Contains(t, strings.Join(report.Notes, "\n"), "it was stuck: ")
	require.Equal(t, []string{"do a", "do big", "undo big"}, l.world.calls)
	require.Len(t, alerts.sent(), 1)
	require.Equal(t, protocol.Stuck, alerts.sent()[0].State)
}

func TestATaskThatIsStuckCanBeCanceled(t *testing.T) {
	l := almostFull(t, &world{}, func(r *run) {
		r.script(
			r.sendUseless,
			func() { r.env.SetContinueAsNewSuggested(true); r.sendUseless() },
			func() { require.NotEmpty(t, r.state().Stuck); r.env.CancelWorkflow() },
		)
	})
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, compensations.Canceled, report.Cause.Kind)
	require.Equal(t, []string{"do a", "do big", "undo big", "undo a"}, l.world.calls)
}

// 99 steps of one request return as much as they may, and the 100th waits for a person while the
// run becomes long.
func TestTheOutputsOfARequestThatIsNotOverAreCarried(t *testing.T) {
	var turn sync.Mutex // steps run at the same time
	texts := rand.New(rand.NewPCG(1, 2))
	w := &world{do: func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		turn.Lock()
		defer turn.Unlock()
		return activities.Result{Outputs: map[string]any{"id": noise(texts, 11_900)}}, nil
	}}
	all := []string{`{"id": "gated", "uses": "fake.do", "gate": "ask", "needs": [], "with": {"path": "/gated"}}`}
	for i := range 99 {
		all = append(all, fmt.Sprintf(`{"id": "b%d", "uses": "fake.do", "with": {"path": "/f/%d"}, "needs": []}`, i, i))
	}
	l := &chained{T: t, world: w, document: sessionDocument}
	var after *updated
	l.in = func(n int, r *run) {
		// packing is slow under the race detector
		if n == 1 {
			r.script(func() { r.update(protocol.UpdateStep, "many", steps(all...)) })
			r.continueAsNew(2 * time.Minute)
			return
		}
		r.script(
			func() { r.decide(protocol.SignalApprove) },
			func() { after = r.update(protocol.UpdateStep, "many", steps(all...)) },
			func() { r.update(protocol.UpdateFinish, "end") },
		)
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, compensations.Committed, report.Status)
	require.Len(t, after.answer.Steps, 100)
	for _, s := range after.answer.Steps {
		require.Equal(t, protocol.Done, s.State)
	}
	require.Len(t, w.calls, 101)
}

func TestARequestThatIsTooLargeIsRefusedBeforeItBegins(t *testing.T) {
	var big, next *updated
	r := newRun(t, &world{})
	r.script(
		func() {
			var all []string
			for range 20 {
				all = append(all, fmt.Sprintf(`{"uses": "fake.do", "with": {"from": %q}}`, strings.Repeat("x", 60_000)))
			}
			big = r.update(protocol.UpdateStep, "1", steps(all...))
		},
		func() { next = r.update(protocol.UpdateStep, "2", steps("a")) },
		func() { r.update(protocol.UpdateFinish, "3") },
	)
	r.session()
	r.failsAs(big.refused, protocol.BadRequest)
	require.ErrorContains(t, big.refused, "the request has 1200")
	require.ErrorContains(t, big.refused, "can have 1000000: send fewer steps at once")
	require.Equal(t, []string{"a done"}, states(next.answer))
}
