package workflows_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows"
)

// planLong plans changes whose diffs are as long as they may be.
func planLong(step string, _ int) (activities.Change, error) {
	return activities.Change{
		Summary: "would do " + step, Risk: activities.High, Digest: activities.Digest("sha256:" + step), Diff: strings.Repeat("+ a line that a person reads\n", activities.MaxDiff/29),
	}, nil
}

func (l *live) stepNow(step string) (now workflows.StepNow) {
	v, err := l.client.QueryWorkflow(l.Context(), l.run.GetID(), "", workflows.QueryStep, step)
	require.NoError(l, err)
	require.NoError(l, v.Get(&now))
	return now
}

func TestEachOfManyGatesCanBeSeenAndDecided(t *testing.T) {
	const n = 150
	w := &world{plan: planLong}
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		w.steps = append(w.steps, addGate(chain(id), id, time.Hour)...)
	}
	l := startLive(t, w)
	s := l.awaitState(func(s workflows.State) bool { return len(s.Gates)+s.MoreGates == n })
	require.Greater(t, len(s.Gates), 1)
	require.Greater(t, s.MoreGates, 1)
	last := l.stepNow("s149")
	require.Len(t, last.Gate.Change.Diff, activities.MaxDiff/29*29, "it is whole")
	require.Equal(t, workflows.AtGate, last.Step.State)
	answer, err := l.ask(workflows.UpdateApprove, workflows.Decision{Step: "s149", Digest: last.Gate.Digest, Who: "ann"})
	require.NoError(t, err)
	require.Nil(t, answer.Cause)
	l.awaitCalls("do s149", 1)
	require.Nil(t, l.stepNow("s149").Gate)
	_, err = l.client.QueryWorkflow(t.Context(), l.run.GetID(), "", workflows.QueryStep, "nowhere")
	require.ErrorContains(t, err, `no step "nowhere"`)
	l.sendSignal(workflows.SignalReject, workflows.Decision{Step: "s140", Digest: l.stepNow("s140").Gate.Digest, Who: "ann"})
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
	answer, err := s.Step(ctx, "many", steps(all...).Steps...)
	require.NoError(t, err)
	require.True(t, answer.Pending)
	require.Len(t, answer.Steps, 100)
	for _, step := range answer.Steps {
		require.NotNil(t, step.Gate, step.ID)
	}
	require.NotEmpty(t, answer.Omitted)
	now, err := s.Answer(ctx, "many")
	require.NoError(t, err)
	require.Equal(t, answer, now)
	require.NoError(t, l.client.CancelWorkflow(ctx, l.Name(), ""))
	_, err = l.report()
	require.True(t, temporal.IsCanceledError(err), "%v", err)
}
