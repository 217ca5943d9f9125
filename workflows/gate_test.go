package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func TestAnApprovedStepRunsWithTheDigestThatWasApproved(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
	var want activities.Digest
	w.do = func(_ context.Context, s string, _ int, f activities.Forward) (activities.Result, error) {
		want = f.Want
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	r.runAfter(time.Minute, func() {
		require.Equal(t, protocol.AtGate, r.state().Steps[1].State)
		require.Equal(t, []string{"do a", "plan b"}, w.calls)
		r.decide(protocol.SignalApprove)
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "do b"}, w.calls)
	require.Equal(t, want, activities.Digest("sha256:change"))
	require.Equal(t, []string{"approved by ann: I looked"}, report.Steps[1].Notes)
	require.Less(t, report.Steps[1].Took, time.Minute, "waiting for a person is no work")
	require.GreaterOrEqual(t, report.Lasted, time.Minute)
	last := r.state().Steps[1]
	require.Equal(t, last.Ended.Sub(last.Began), report.Steps[1].Took+last.Waited)
	require.Equal(t, time.Minute, last.Waited.Round(time.Second))
}

func TestARejectedStepUnwindsWithItsPlanAndThoseBefore(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b", "c"), "b", time.Hour)}
	r := newRun(t, w)
	r.runAfter(time.Minute, func() { r.decide(protocol.SignalReject) })
	report, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, w.calls)
	require.Equal(t, compensations.Rejected, report.Cause.Kind)
	require.Equal(t, "step b was rejected by ann: I looked", report.Cause.Text)
}

func TestAGateFailsClosed(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
	r := newRun(t, w)
	_, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.ErrorContains(t, err, "nobody approved step b within 1h0m0s")
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, w.calls)
}

func TestCancelAtAGateUnwinds(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
	r := newRun(t, w)
	r.runAfter(time.Minute, r.env.CancelWorkflow)
	_, err := r.report()
	require.True(t, temporal.IsCanceledError(err))
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo a"}, w.calls)
}

func TestSignalsThatFitNoGateDecideNothingAndAreShown(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
	r := newRun(t, w)
	r.runAfter(time.Minute, func() {
		r.env.SignalWorkflow(protocol.SignalApprove,
			protocol.Decision{Step: "b", Digest: "sha256:0123456789ab-of-another-opening"})
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "b"})
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "a"})
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "nowhere"})
		r.env.SignalWorkflow(protocol.SignalApprove, "just do it")
		r.env.SignalWorkflow(protocol.SignalReject, []byte{0xff, 0xfe})
		r.env.SignalWorkflow(compensations.SignalResolve, compensations.Resolution{Step: "a", Do: compensations.Skip})
		require.Equal(t, protocol.AtGate, r.state().Steps[1].State)
	})
	r.runAfter(2*time.Minute, func() {
		digest := r.state().Gates[0].Digest
		r.decide(protocol.SignalApprove)
		r.env.SignalWorkflow(protocol.SignalReject, protocol.Decision{Step: "b", Digest: digest, Who: "late"})
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan b", "do b"}, w.calls)
	require.Len(t, report.Notes, 8)
	for i, want := range []string{
		"ignored signal: approve: digest 0123456789ab is not that of the present gate of step \"b\"",
		"ignored signal: approve: digest  is not that of the present gate",
		"ignored signal: approve: step \"a\" is not at a gate",
		"ignored signal: approve: there is no step \"nowhere\"",
		"ignored signal: approve: the payload is not {step, digest, who, why}",
		"ignored signal: reject: the payload is not {step, digest, who, why}",
		"ignored signal: resolve: nothing is parked",
		"ignored signal: reject: ",
	} {
		require.Contains(t, report.Notes[i], want)
	}
}

// empty encodes a signal without any payload, as a client can send it.
type empty struct{ converter.DataConverter }

func (e empty) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	if len(values) == 1 && values[0] == (empty{}) {
		return nil, nil
	}
	return e.DataConverter.ToPayloads(values...)
}

func TestASignalWithoutAPayloadIsNotTakenForTheOneBefore(t *testing.T) {
	r := newRun(t, &world{steps: chain("a")})
	r.env.SetDataConverter(empty{converter.GetDefaultDataConverter()})
	r.runAfter(0, func() { // both signals are there when the task begins
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "nowhere"})
		r.env.SignalWorkflow(protocol.SignalApprove, empty{})
	})
	report, err := r.report()
	require.NoError(t, err)
	require.Len(t, report.Notes, 2)
	require.Contains(t, report.Notes[0], `there is no step "nowhere"`)
	require.Contains(t, report.Notes[1], "the payload is not {step, digest, who, why}")
}

func TestAStaleApprovalGoesBackToTheGateAndNeedsANewOne(t *testing.T) {
	w := &world{steps: addGate(chain("a"), "a", time.Hour)}
	w.do = func(_ context.Context, _ string, n int, _ activities.Forward) (activities.Result, error) {
		if n == 1 {
			return activities.Result{},
				temporal.NewNonRetryableApplicationError("changed", string(activities.StaleApproval), nil)
		}
		return activities.Result{}, nil
	}
	r := newRun(t, w)
	var first activities.Digest
	r.runAfter(time.Minute, func() {
		first = r.state().Gates[0].Digest
		r.decide(protocol.SignalApprove)
	})
	r.runAfter(2*time.Minute, func() {
		again := r.state().Gates[0]
		require.Equal(t, 2, again.Opening)
		require.NotEqual(t, first, again.Digest, "the same change, but another opening")
		r.env.SignalWorkflow(protocol.SignalApprove, protocol.Decision{Step: "a", Digest: first})
	})
	r.runAfter(3*time.Minute, func() { r.decide(protocol.SignalApprove) })
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"plan a", "do a", "plan a", "do a"}, w.calls)
}

func TestWhoIsAskedByModeAndChange(t *testing.T) {
	for _, c := range []struct {
		name   string
		gate   task.Gate
		change activities.Change
		asked  bool
	}{
		{"auto and low", task.Gate{Mode: task.GateAuto, Limit: time.Hour}, activities.Change{Risk: activities.Low}, false},
		{"risky and nothing to do", task.Gate{Mode: task.GateAsk, Risky: true, Limit: time.Hour},
			activities.Change{Risk: activities.High, Unchanged: true}, false},
		{"risky and nothing to do, and asked", task.Gate{Mode: task.GateAsk, Risky: true, Limit: time.Hour},
			activities.Change{Unchanged: true, Ask: true}, true},
		{"nothing to do, and the file asks", task.Gate{Mode: task.GateAsk, Limit: time.Hour},
			activities.Change{Risk: activities.High, Unchanged: true}, true},
		{"auto and nothing to do", task.Gate{Mode: task.GateAuto, Limit: time.Hour},
			activities.Change{Risk: activities.High, Unchanged: true}, false},
		{"auto and medium", task.Gate{Mode: task.GateAuto, Limit: time.Hour}, activities.Change{Risk: activities.Medium},
			true},
		{"none and high", task.Gate{Mode: task.GateNone, Limit: time.Hour}, activities.Change{Risk: activities.High}, false},
		{"open and medium", task.Gate{Mode: task.GateOpen}, activities.Change{Risk: activities.Medium}, false},
		{"open and high", task.Gate{Mode: task.GateOpen}, activities.Change{Risk: activities.High}, true},
		{"open and nothing to do", task.Gate{Mode: task.GateOpen}, activities.Change{Risk: activities.High, Unchanged: true},
			false},
		{"open, and it cannot be undone", task.Gate{Mode: task.GateOpen},
			activities.Change{Risk: activities.Low, Strategy: activities.Irreversible}, true},
		{"open and low, below the floor", task.Gate{Mode: task.GateOpen},
			activities.Change{Risk: activities.Low, Floor: "always"}, true},
		{"none, below the floor", task.Gate{Mode: task.GateNone}, activities.Change{Risk: activities.High, Floor: "high"},
			true},
		{"auto and low, below the floor", task.Gate{Mode: task.GateAuto, Limit: time.Hour},
			activities.Change{Risk: activities.Low, Floor: "always"}, true},
		{"none, but the change destroys", task.Gate{Mode: task.GateNone, Limit: time.Hour},
			activities.Change{Risk: activities.High, Ask: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change.Digest = "sha256:change"
			w := &world{steps: chain("a"), plan: func(string, int) (activities.Change, error) { return c.change, nil }}
			w.do = judging(c.change)
			w.steps[0].Gate = c.gate
			r := newRun(t, w)
			asked := false
			r.runAfter(time.Minute, func() {
				if asked = len(r.state().Gates) > 0; asked {
					r.decide(protocol.SignalApprove)
				}
			})
			report, err := r.report()
			require.NoError(t, err)
			require.Equal(t, c.asked, asked)
			if c.gate.Mode == task.GateNone {
				require.Contains(t, report.Notes,
					"step a runs without its gate, unless its change must always be asked about: the task file says gate: none")
			}
		})
	}
}

// judging does a step as a worker that judges the change of it.
func judging(change activities.Change) func(context.Context, string, int, activities.Forward) (activities.Result,
	error) {
	return func(_ context.Context, _ string, _ int, f activities.Forward) (activities.Result, error) {
		if why := change.Asks(f.Consent); why != "" {
			return activities.Result{}, temporal.NewNonRetryableApplicationError(why, string(activities.Asks), nil)
		}
		if f.Consent == activities.Approved && f.Want != change.Digest {
			return activities.Result{}, errors.New("this is not what was approved")
		}
		return activities.Result{Summary: "done"}, nil
	}
}

func TestAChangeThatTurnsOutToBeRiskyWaitsAtAGate(t *testing.T) {
	high := activities.Change{Summary: "all goes", Risk: activities.High, Digest: "sha256:change"}
	for signal, want := range map[string][]string{
		protocol.SignalApprove: {"do a", "do b", "plan b", "do b", "do c"},
		protocol.SignalReject:  {"do a", "do b", "plan b", "undo b", "undo a"},
	} {
		w := &world{steps: chain("a", "b", "c"), plan: func(string, int) (activities.Change, error) { return high, nil }}
		w.do = func(ctx context.Context, step string, n int, f activities.Forward) (activities.Result, error) {
			if step != "b" {
				return activities.Result{}, nil
			}
			return judging(high)(ctx, step, n, f)
		}
		r := newRun(t, w)
		r.runAfter(time.Minute, func() {
			require.Equal(t, "its risk is high", r.state().Gates[0].Why)
			require.Equal(t, 365*24*time.Hour, r.state().Gates[0].Until.Sub(r.state().Gates[0].Since))
			r.decide(signal)
		})
		_, err := r.report()
		require.Equal(t, signal == protocol.SignalReject, err != nil)
		require.Equal(t, want, w.calls, signal)
	}
}

// A plan by another worker, or a moment later, may find nothing that asks: what a worker has
// refused to do unasked is asked nevertheless.
func TestWhatItsWorkerWillNotDoUnaskedIsAsked(t *testing.T) {
	low := activities.Change{Risk: activities.Low, Digest: "sha256:change"}
	w := &world{steps: chain("a"), plan: func(string, int) (activities.Change, error) { return low, nil }}
	w.do = judging(activities.Change{Risk: activities.High, Digest: "sha256:change"})
	r := newRun(t, w)
	r.runAfter(time.Minute, func() {
		require.Equal(t, "its worker makes this change only with an approval", r.state().Gates[0].Why)
		r.decide(protocol.SignalApprove)
	})
	_, err := r.report()
	require.NoError(t, err)
	require.Equal(t, []string{"do a", "plan a", "do a"}, w.calls)
}

func TestALateApprovalChangesNothingInAnUnwind(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "b", time.Hour)}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" && n == 1 {
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	r := newRun(t, w)
	var late protocol.Decision
	r.runAfter(time.Minute, func() {
		late = protocol.Decision{Step: "b", Digest: r.state().Gates[0].Digest}
		r.decide(protocol.SignalReject)
	})
	r.runAfter(2*time.Minute, func() {
		require.Equal(t, protocol.Unwinding, r.state().Phase)
		r.env.SignalWorkflow(protocol.SignalApprove, late)
		r.env.CancelWorkflow()
	})
	r.runAfter(3*time.Minute, func() { r.resolveParked(compensations.Retry) })
	report, err := r.report()
	r.failsAs(err, protocol.TaskRejected)
	require.Equal(t, []string{"do a", "plan b", "undo b", "undo b", "undo a"}, w.calls)
	require.Contains(t, report.Notes, `ignored signal: approve: step "b" is not at a gate`)
}

// A run that is to end while decisions are verified waits for that: none is lost, and the one that counts
// does so once, in whichever run.
func TestARunThatEndsWhileDecisionsAreVerifiedLosesNoneAndTakesNoneTwice(t *testing.T) {
	w := &world{steps: addGate(chain("a", "b"), "a", 24*time.Hour)}
	stepByID(w.steps, "a").Place.Signed = true
	var verified []string
	l := &chained{T: t, world: w}
	l.in = func(n int, r *run) {
		r.env.RegisterActivityWithOptions(func(_ context.Context, d protocol.SignedDecision) (protocol.Proof, error) {
			verified = append(verified, fmt.Sprintf("run %d: %s of %s", n, d.Statement.Verdict, d.Signature))
			if d.Signature == "mallory" {
				return protocol.Proof{Refusal: "nobody knows that key"}, nil
			}
			return protocol.Proof{Key: "SHA256:" + d.Signature}, nil
		}, activity.RegisterOptions{Name: protocol.VerifyActivity})
		send := func(signal, by string) {
			g := r.state().Gates[0]
			r.env.SignalWorkflow(signal, protocol.Decision{Step: "a", Digest: g.Digest, Who: by, Signature: by})
		}
		verifying := 0
		r.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			if info.ActivityType.Name != protocol.VerifyActivity {
				return
			}
			if verifying++; verifying == 1 { // the run is to end now, and more come
				r.env.SetContinueAsNewSuggested(true)
				send(protocol.SignalApprove, "ann")
				send(protocol.SignalReject, "bob")
			}
		})
		if n == 1 {
			r.runAfter(time.Minute, func() { send(protocol.SignalApprove, "mallory") })
		}
	}
	report, err := l.report()
	require.NoError(t, err)
	require.Equal(t, 2, l.runs)
	require.Equal(t, []string{"run 1: approve of mallory", "run 1: approve of ann"}, verified)
	require.Equal(t, []string{"plan a", "do a", "do b"}, w.calls)
	require.Equal(t, []string{"approved by ann (key SHA256:ann)"}, notesOf(report, "a"))
	require.Equal(t, []string{`ignored signal: approve: step "a": nobody knows that key`,
		`ignored signal: reject: the gate of step "a" is decided already`}, report.Notes)
}
