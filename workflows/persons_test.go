package workflows_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// twoPersons is what rules decide that ask one of each of two groups, within an hour.
func twoPersons() *activities.Ruling {
	return &activities.Ruling{
		Verdict: activities.Asked, Rules: []activities.RuleMatch{{Name: "big-deletes", Why: "many rows go"}},
		Version: activities.DigestOf([]byte("policy")), Within: time.Hour,
		Demands: []activities.Demand{
			{Group: "dba", Persons: 1, Of: []string{"ann", "bob"}}, {Group: "sre", Persons: 1, Of: []string{"cy"}},
		},
	}
}

// asksTwo has step b of a world planned, and two persons asked.
func asksTwo(w *world) *world {
	w.plan = func(string, int) (activities.Change, error) {
		return activities.Change{Summary: "delete", Risk: activities.Low, Digest: "sha256:change", Policy: twoPersons()}, nil
	}
	return w
}

func (r *run) approveAs(who string) {
	g := r.state().Gates
	require.Len(r, g, 1)
	r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: g[0].Step, Digest: g[0].Digest, Who: who})
}

func TestAGateOfRulesCollectsApprovalsUntilAllAreThere(t *testing.T) {
	w := asksTwo(&world{steps: addGate(chain("a", "b"), "b", 24*time.Hour)})
	var forward activities.Forward
	w.do = func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		if s == "b" {
			forward = f
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	rules := twoPersons().Name()
	r.runAfter(time.Minute, func() {
		g := r.state().Gates[0]
		require.Equal(t, "the worker's policy asks: "+rules+" (many rows go)", g.Why)
		require.Equal(t, "0 of 2: still one of dba (ann, bob), and one of sre (cy)", g.Waits)
		require.Equal(t, time.Hour, g.Until.Sub(g.Since), "the rules bound it, not the step")
		r.approveAs("ann@laptop")
		r.approveAs("ann@desktop")
		r.approveAs("bob")
		r.approveAs("mallory")
		r.approveAs("")
	})
	r.runAfter(2*time.Minute, func() {
		g := r.state().Gates[0]
		require.Equal(t, "1 of 2: still one of sre (cy)", g.Waits)
		require.Len(t, g.Assents, 1)
		require.Equal(t, "ann@laptop", g.Assents[0].Who)
		require.Equal(t, protocol.AtGate, r.state().Steps[1].State)
		r.approveAs("cy")
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"approved by ann@laptop, cy; " + rules}, report.Steps[1].Notes)
	require.Equal(t, activities.Approved, forward.Consent)
	require.Equal(t, []string{"ann@laptop", "cy"}, []string{forward.Assents[0].Who, forward.Assents[1].Who})
	require.Len(t, report.Notes, 4)
	for i, why := range []string{
		`step "b": ann@desktop has approved it already; 1 of 2: still one of sre (cy)`,
		`step "b": of the group of bob enough have approved; 1 of 2: still one of sre (cy)`,
		`step "b": mallory is in none of the groups that must approve; 1 of 2: still one of sre (cy)`,
		`step "b": it does not say who approves, and ` + rules + ` ask for 1 of 2: still one of sre (cy)`,
	} {
		require.Contains(t, report.Notes[i], why)
	}
}

func TestOneRejectionOfAHalfApprovedStepRejectsIt(t *testing.T) {
	r := newRun(t, asksTwo(&world{steps: addGate(chain("a", "b"), "b", time.Hour)}))
	r.runAfter(time.Minute, func() { r.approveAs("ann") })
	r.runAfter(2*time.Minute, func() { r.decide(protocol.SignalReject) })
	_, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.ErrorContains(t, err, "step b was rejected by ann: I looked")
}

func TestAHalfApprovedStepIsRejectedInTime(t *testing.T) {
	r := newRun(t, asksTwo(&world{steps: addGate(chain("a", "b"), "b", 24*time.Hour)}))
	r.runAfter(time.Minute, func() { r.approveAs("cy") })
	began := r.env.Now()
	_, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.ErrorContains(t, err, "not enough persons (1 of 2: still one of dba (ann, bob)) approved step b within 1h0m0s")
	require.WithinDuration(t, began.Add(time.Hour), r.env.Now(), time.Minute)
}

// What was approved by one is void for both once the change is another.
func TestApprovalsAreVoidWhenTheChangeIsAnother(t *testing.T) {
	w := asksTwo(&world{steps: addGate(chain("b"), "b", time.Hour)})
	w.do = func(_ context.Context, _ string, n int, _ activities.Forward) (activities.Result, error) {
		if n == 1 {
			return activities.Result{}, temporal.NewNonRetryableApplicationError("another", string(activities.StaleApproval), nil)
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.approveAs("ann"); r.approveAs("cy") })
	r.runAfter(2*time.Minute, func() {
		g := r.state().Gates[0]
		require.Equal(t, 2, g.Opening)
		require.Empty(t, g.Assents)
		require.Equal(t, "0 of 2: still one of dba (ann, bob), and one of sre (cy)", g.Waits)
		r.approveAs("cy")
		r.approveAs("bob")
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, "approved by cy, bob; "+twoPersons().Name(), report.Steps[0].Notes[2])
}

// A worker that makes only what it has judged refuses a target that changes in between: nobody was
// asked, so it is simply done again.
func TestAStepWithoutAGateIsDoneAgainIfItsTargetChangedWhileItWasJudged(t *testing.T) {
	w := &world{steps: chain("a")}
	w.do = func(_ context.Context, _ string, n int, f activities.Forward) (activities.Result, error) {
		require.Empty(t, f.Want)
		if n == 1 {
			return activities.Result{}, temporal.NewNonRetryableApplicationError("another", string(activities.StaleApproval), nil)
		}
		return activities.Result{}, nil
	}
	_, err := newRun(t, w).report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "do a"}, w.calls)
}

func TestAnApprovalOfOneOfTwoOutlivesItsRun(t *testing.T) {
	var first protocol.GateView
	l := &chained{T: t, world: asksTwo(gateBesideWork())}
	l.in = func(n int, r *run) {
		switch n {
		case 1:
			r.runAfter(20*time.Second, func() { r.approveAs("ann") })
			r.runAfter(30*time.Second, func() {
				first = r.state().Gates[0]
				require.Len(t, first.Assents, 1)
				r.env.SetContinueAsNewSuggested(true)
			})
		case 2:
			r.runAfter(30*time.Second, func() {
				g := r.state().Gates[0]
				require.Equal(t, first.Waits, g.Waits)
				require.Equal(t, "ann", g.Assents[0].Who)
				require.True(t, first.Until.Equal(g.Until))
				r.approveAs("ann")
				r.approveAs("cy")
			})
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"approved by ann, cy; " + twoPersons().Name()}, notesOf(report, "g"))
	require.Contains(t, report.Notes[0], "ann has approved it already")
}

func TestApprovalsByUpdatesSayWhoIsMissing(t *testing.T) {
	l := startLive(t, asksTwo(&world{steps: addGate(chain("a", "b"), "b", time.Hour)}))
	digest := l.awaitState(atGate).Gates[0].Digest
	ask := func(who string) (protocol.DecisionAnswer, error) {
		return l.ask(protocol.UpdateApprove, protocol.Decision{Step: "b", Digest: digest, Who: who})
	}
	answer, err := ask("ann")
	require.NoError(t, err)
	require.Equal(t, protocol.DecisionAnswer{Step: "b", State: protocol.AtGate, Phase: protocol.Forward,
		Waits: "1 of 2: still one of sre (cy)"}, answer)
	for who, why := range map[string]string{
		"ann": "ann has approved it already", "mallory": "mallory is in none of the groups", "": "it does not say who approves",
	} {
		_, err := ask(who)
		requireType(t, err, protocol.NothingDecided)
		require.ErrorContains(t, err, why)
	}
	require.Equal(t, 1, l.countUpdates(), "what decides nothing leaves no trace")
	answer, err = ask("cy")
	require.NoError(t, err)
	require.Empty(t, answer.Waits)
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, compensations.Committed, report.Status)
}

// After some refusals of a standing approval by the worker that acts, all of the persons are asked, also
// where each of them was in another run.
func TestRefusedStandingApprovalsAreCountedThroughAllRuns(t *testing.T) {
	w := &world{steps: addGate(chain("a"), "a", 24*time.Hour)}
	w.plan = func(string, int) (activities.Change, error) {
		return activities.Change{Summary: "would", Risk: activities.High, Digest: "sha256:change", Policy: twoPersons(),
			Standing: []activities.Assent{{Who: "cy", Allowance: "one"}}}, nil
	}
	w.do = func(_ context.Context, _ string, _ int, f activities.Forward) (activities.Result, error) {
		if slices.ContainsFunc(f.Assents, activities.Assent.IsStanding) {
			return activities.Result{}, temporal.NewNonRetryableApplicationError("revoked", string(activities.StaleApproval), nil)
		}
		return activities.Result{}, nil
	}
	var waits []string
	l := &chained{T: t, world: w, in: func(n int, r *run) {
		r.runAfter(time.Minute, func() {
			waits = append(waits, r.state().Gates[0].Waits)
			r.approveAs("ann")
		})
		if n <= 3 {
			r.continueAsNew(2 * time.Minute)
			return
		}
		r.runAfter(2*time.Minute, func() { r.approveAs("cy") })
	}}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 4, l.runs)
	one, both := "1 of 2: still one of dba (ann, bob)", "0 of 2: still one of dba (ann, bob), and one of sre (cy)"
	require.Equal(t, []string{one, one, one, both}, waits)
	require.Equal(t, []string{"plan a", "do a", "plan a", "do a", "plan a", "do a", "plan a", "do a"}, w.calls)
	require.Equal(t, compensations.Committed, report.Status)
}
