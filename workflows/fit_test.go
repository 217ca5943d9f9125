package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// The findings of the undos exceed what fits into a carry and into a report.
func TestTextsAreShortenedUntilCarryAndReportFit(t *testing.T) {
	const n = 60
	steps := longChain(n)
	for i := range steps {
		steps[i].Needs = nil
	}
	steps[n-1].Needs = []string{steps[n-2].ID}
	finishLate(steps, steps[n-1].ID)
	r := mathrand.New(mathrand.NewPCG(1, 2))
	answers, drifted := map[string]activities.Undone{}, 0
	for i, s := range steps {
		u := activities.Undone{Outcome: activities.Residue, Observed: noise(r, activities.MaxText*3/4)}
		if i%2 == 1 {
			u.Outcome, u.Drift = activities.Drifted,
				&activities.Drift{Digest: activities.DigestOf([]byte(s.ID)), Diff: noise(r, activities.MaxDiff*3/4)}
			drifted++
		}
		for range activities.MaxItems {
			u.Losses = append(u.Losses, noise(r, activities.MaxItem*3/4))
		}
		answers[s.ID] = u
	}
	w := &world{steps: steps}
	w.do = func(_ context.Context, s string, times int, _ activities.Forward) (activities.Result, error) {
		switch {
		case s == steps[n-1].ID && times == 1:
			return activities.Result{}, errAgain // until all other steps are done
		case s == steps[n-1].ID:
			return activities.Result{}, errNo
		}
		return activities.Result{}, nil
	}
	w.undo = func(step string, _ int, d activities.Decision) (activities.Undone, error) {
		u := answers[step]
		if d.Force != "" {
			if d.Force != u.Drift.Digest {
				return activities.Undone{}, fmt.Errorf("%s is not what was shown", d.Force)
			}
			u.Outcome, u.Drift = activities.Residue, nil
		}
		return u, nil
	}
	var alerts alertLog
	l := &chained{T: t, world: w}
	l.in = func(run int, r *run) {
		// packing is slow under the race detector
		alerts.keepThoseOf(r)
		if run == 1 {
			r.runAfter(time.Hour, func() {
				r.env.SetContinueAsNewSuggested(true)
				r.env.SignalWorkflow(compensations.SignalResolve, "anything wakes it")
			})
			return
		}
		r.runAfter(time.Minute, func() {
			require.Len(t, alerts.sent(), drifted, "somebody is told of each, once")
			for _, a := range alerts.sent() {
				r.env.SignalWorkflow(compensations.SignalResolve,
					compensations.Resolution{Step: a.Step, Digest: a.Digest, Do: compensations.Force, Who: "eve"})
			}
		})
	}
	l.pass = func(c *protocol.Carry) {
		require.Len(t, c.Saga.Entries, drifted+1, "and what the last one builds on")
		require.Len(t, c.Saga.Progress, drifted)
		raw, err := json.Marshal(c)
		require.NoError(t, err)
		require.Less(t, len(raw), packed.Max*3/2)
		require.NotEmpty(t, c.Saga.Past.Steps[0].Observed, "not more than must be")
	}
	report, err := l.report()
	l.last.failsAs(err, protocol.TaskFailed)
	require.Equal(t, 2, l.runs)
	require.Equal(t, compensations.Remains, report.Status)
	require.Equal(t, map[string]int{"residue": n}, report.Outcomes)
	require.Len(t, report.Steps, n)
	raw, err := json.Marshal(report)
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), 1_000_000)
}
