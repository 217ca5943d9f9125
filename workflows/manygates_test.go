package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// planLong plans changes whose diffs are as long as they may be.
func planLong(step string, _ int) (activities.Change, error) {
	return activities.Change{
		Summary: "would do " + step, Risk: activities.High, Digest: activities.Digest("sha256:" + step),
		Diff: strings.Repeat("+ a line that a person reads\n", activities.MaxDiff/29),
	}, nil
}

func (l *live) stepNow(step string) (now protocol.StepNow) {
	require.EventuallyWithT(l, func(c *assert.CollectT) { // a busy machine may answer too late
		v, err := l.client.QueryWorkflow(l.Context(), l.run.GetID(), "", protocol.QueryStep, step)
		require.NoError(c, err)
		require.NoError(c, v.Get(&now))
	}, 2*time.Minute, 20*time.Millisecond)
	return now
}

func TestEachOfManyGatesCanBeSeenAndDecided(t *testing.T) {
	const n = 150
	w := &world{plan: planLong}
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		w.steps = append(w.steps, addGate(chain(id), id, time.Hour)...)
	}
	_, c := newPatientServer(t)
	l := newLive(t, c, w)
	l.startWorker()
	l.start()
	s := l.awaitState(func(s protocol.State) bool { return len(s.Gates)+s.MoreGates == n })
	require.Greater(t, len(s.Gates), 1)
	require.Greater(t, s.MoreGates, 1)
	last := l.stepNow("s149")
	require.Len(t, last.Gate.Change.Diff, activities.MaxDiff/29*29, "it is whole")
	require.Equal(t, protocol.AtGate, last.Step.State)
	answer, err := l.ask(protocol.UpdateApprove, protocol.Decision{Step: "s149", Digest: last.Gate.Digest, Who: "ann"})
	require.NoError(t, err)
	require.Nil(t, answer.Cause)
	l.awaitCalls("do s149", 1)
	require.Nil(t, l.stepNow("s149").Gate)
	_, err = l.client.QueryWorkflow(t.Context(), l.run.GetID(), "", protocol.QueryStep, "nowhere")
	require.ErrorContains(t, err, `no step "nowhere"`)
	l.sendSignal(protocol.SignalReject, protocol.Decision{Step: "s140", Digest: l.stepNow("s140").Gate.Digest, Who: "ann"})
	report, err := l.report()
	require.Error(t, err)
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, 1, w.count["undo s149"])
}

func TestTheAnswerToARequestOfManyGatesSaysSoOfEach(t *testing.T) {
	l := newLive(t, servertest.Client(t), &world{risky: true, plan: planLong})
	s := l.openSession()
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf(`{"uses": "fake.do", "needs": [], "with": {"path": "/f/%d"}}`, i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	first, err := s.Step(ctx, "many", steps(all...).Steps...)
	require.NoError(t, err)
	require.True(t, first.Pending)
	require.Len(t, first.Steps, 100)
	var now protocol.Answer
	require.Eventually(t, func() bool {
		now, err = s.Answer(ctx, "many")
		require.NoError(t, err)
		return !slices.ContainsFunc(now.Steps, func(s protocol.StepAnswer) bool { return s.Gate == nil })
	}, time.Minute, 100*time.Millisecond, "an update answers before all gates are open; the query says so of each")
	require.True(t, now.Pending)
	require.Len(t, now.Steps, 100)
	require.NotEmpty(t, now.Omitted)
	require.NoError(t, l.client.CancelWorkflow(ctx, l.Name(), ""))
	_, err = l.report()
	require.True(t, temporal.IsCanceledError(err), "%v", err)
}
