package workflows_test

import (
	"context"
	"encoding/base64"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// awaitPark waits for the n-th alert that a step is parked, and returns the digest of the park.
func (l *live) awaitPark(step string, n int) (digest activities.Digest) {
	l.Helper()
	require.Eventually(l, func() bool {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		times := 0
		for _, a := range l.alerts {
			if a.Step == step {
				times, digest = times+1, a.Digest
			}
		}
		return times >= n
	}, 2*time.Minute, 10*time.Millisecond, step)
	return digest
}

func (l *live) decide(step string, digest activities.Digest, do compensations.Do) {
	l.sendSignal(compensations.SignalResolve, compensations.Resolution{Step: step, Digest: digest, Do: do, Who: "eve"})
}

func TestDecisionsInADeadRunHoldInItsRecovery(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("b", "c", "d", "e", "f"), do: refusing("f")}
	var forced []activities.Digest
	w.undo = func(step string, n int, d activities.Decision) (activities.Undone, error) {
		switch {
		case step == "e" || step == "b":
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		case step == "d" && n == 1:
			return activities.Undone{Outcome: activities.Drifted, Observed: "changed",
				Drift: &activities.Drift{Digest: "sha256:theirs"}}, nil
		case step == "d" && n == 2:
			<-letGo
		case step == "d":
			w.mu.Lock()
			defer w.mu.Unlock()
			forced = append(forced, d.Force)
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	e := l.awaitPark("e", 1)
	l.decide("e", "sha256:forged", compensations.Skip)
	l.decide("e", e, compensations.Accept)
	d := l.awaitPark("d", 1)
	l.decide("e", e, compensations.Skip)   // decided already
	l.decide("d", e, compensations.Accept) // the digest of another park
	l.decide("d", d, compensations.Force)
	l.awaitCalls("undo d", 2)
	l.decide("d", d, compensations.Accept) // no longer parked
	l.terminate(l.run.GetID())
	close(letGo)

	run := l.recover()
	b := l.awaitPark("b", 1)
	require.NoError(t, l.client.SignalWorkflow(t.Context(), run.WorkflowID, "", compensations.SignalResolve,
		compensations.Resolution{Step: "b", Digest: b, Do: compensations.Skip, Who: "eve"}))
	report := l.awaitReport(run)
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{
		"f settled restored", "e accepted unknown", "d settled restored", "c settled restored", "b skipped unknown",
	}, outcomes(report))
	require.Equal(t, []activities.Digest{"sha256:theirs"}, forced)
	require.Equal(t, 1, w.times("undo e"), "nobody is asked again")
	require.Len(t, l.alerts, 3)
}

func TestASkipInADeadRunSurvivesADeadRecovery(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
		switch {
		case step == "b":
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		case step == "a" && n <= 2:
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.decide("b", l.awaitPark("b", 1), compensations.Skip)
	l.decide("a", l.awaitPark("a", 1), compensations.Retry) // although b, which builds on it, is skipped
	l.awaitCalls("undo a", 1)
	l.terminate(l.run.GetID())
	first := l.recover()
	l.awaitCalls("undo a", 2)
	l.terminate(first.WorkflowID)
	second := l.recover()
	close(letGo)
	report := l.awaitReport(second)
	require.ElementsMatch(t, []string{"c settled restored", "b skipped unknown", "a settled restored"}, outcomes(report))
	require.Equal(t, []string{"undo c", "undo b", "undo a", "undo a", "undo a"}, l.calls()[3:])
}

func TestARecoveryUnwindsInParallelAsTheTaskSays(t *testing.T) {
	steps := chain("a", "b", "c")
	steps[1].Needs = nil
	steps[2].Needs = []string{"a", "b"}
	w := &world{steps: steps, do: blockAt("c", never), compiled: task.Compiled{Unwind: task.UnwindParallel}}
	both := make(chan struct{})
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step != "c" {
			select { // each waits for the other
			case both <- struct{}{}:
			case <-both:
			case <-time.After(2 * time.Minute):
				return activities.Undone{Outcome: activities.Unknown, Observed: "it is alone"}, nil
			}
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := startLive(t, w)
	l.awaitCalls("do c", 1)
	l.terminate(l.run.GetID())
	require.Equal(t, compensations.Unwound, l.awaitReport(l.recover()).Status)
}

// The findings of a dead run are handed to its recovery, shortened if they are too large.
func TestADeadRunWithTooManyFindingsIsRecovered(t *testing.T) {
	const n = 60
	steps := longChain(n)
	for i := range steps {
		steps[i].Needs = nil
	}
	r := mathrand.New(mathrand.NewPCG(1, 2))
	w := &world{steps: steps, do: refusing(steps[n-1].ID), compiled: task.Compiled{Unwind: task.UnwindParallel}}
	w.steps[n-1].Retry = task.Retry{Attempts: 1}
	for _, s := range steps[:n-1] { // the last step begins when all others are done
		w.steps[n-1].Needs = append(w.steps[n-1].Needs, s.ID)
	}
	var mu sync.Mutex
	w.undo = func(step string, times int, _ activities.Decision) (activities.Undone, error) {
		if times > 1 || step == steps[n-1].ID {
			return activities.Undone{Outcome: activities.Restored}, nil
		}
		mu.Lock()
		defer mu.Unlock()
		raw := make([]byte, activities.MaxDiff*3/4) // incompressible
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		diff := base64.StdEncoding.EncodeToString(raw)
		return activities.Undone{Outcome: activities.Drifted,
			Drift: &activities.Drift{Digest: activities.DigestOf([]byte(diff)), Diff: diff}}, nil
	}
	l := startLive(t, w)
	for _, s := range steps[:n-1] {
		l.awaitPark(s.ID, 1)
	}
	l.terminate(l.run.GetID())
	report := l.awaitReport(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"restored": n}, report.Outcomes)
}

// A withdrawn undo may be running: its host came back at the same moment. What it did counts, and
// what it could not do is told.
func TestAWithdrawnUndoThatItsHostHasTakenIsAwaited(t *testing.T) {
	drifted := activities.Undone{
		Outcome: activities.Drifted, Observed: "changed",
		Drift: &activities.Drift{Digest: "sha256:theirs", Diff: "- ours\n+ theirs"},
	}
	for name, c := range map[string]struct {
		do, late compensations.Do
		undone   activities.Undone
		err      error
		want     []string // of the steps
		notes    []string // of step b
		status   compensations.Status
	}{
		"accepted and undone": {
			do: compensations.Accept, late: compensations.Skip, undone: activities.Undone{Outcome: activities.Restored},
			want:   []string{"a settled restored", "b settled restored", "c settled restored"},
			notes:  []string{"accept by eve", "its host had taken it before that: it was undone"},
			status: compensations.Unwound,
		},
		"skipped and undone": {
			do: compensations.Skip, late: compensations.Accept, undone: activities.Undone{Outcome: activities.Restored},
			want:   []string{"a settled restored", "b settled restored", "c settled restored"},
			notes:  []string{"skip by eve", "its host had taken it before that: it was undone"},
			status: compensations.Unwound,
		},
		"accepted and drifted": {
			do: compensations.Accept, late: compensations.Skip, undone: drifted,
			want:   []string{"a settled restored", "b accepted drifted", "c settled restored"},
			notes:  []string{"accept by eve"},
			status: compensations.Remains,
		},
		"skipped and drifted": {
			do: compensations.Skip, late: compensations.Accept, undone: drifted,
			want:   []string{"a accepted failed", "b skipped drifted", "c settled restored"},
			notes:  []string{"skip by eve"},
			status: compensations.Remains,
		},
		"accepted and failed": {
			do: compensations.Accept, late: compensations.Skip,
			err:  temporal.NewNonRetryableApplicationError("the account is closed", "AccountClosed", nil),
			want: []string{"a settled restored", "b accepted failed", "c settled restored"},
			notes: []string{"accept by eve",
				"its host had taken it before that: ActionFailed: the account is closed (type: AccountClosed, retryable: false)"},
			status: compensations.Remains,
		},
		"skipped and failed": {
			do: compensations.Skip, late: compensations.Accept,
			err:  temporal.NewNonRetryableApplicationError("the account is closed", "AccountClosed", nil),
			want: []string{"a accepted failed", "b skipped failed", "c settled restored"},
			notes: []string{"skip by eve",
				"its host had taken it before that: ActionFailed: the account is closed (type: AccountClosed, retryable: false)"},
			status: compensations.Remains,
		},
	} {
		t.Run(name, func(t *testing.T) {
			letGo := make(chan struct{})
			w := &world{steps: chain("a", "b", "c")}
			w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
				if step == "b" {
					<-letGo
					return c.undone, c.err
				}
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			l := newLive(t, servertest.Client(t), w)
			far := l.queue + "-far"
			b := stepByID(w.steps, "b")
			b.Undo.HostWait, b.Place = time.Second, activities.Place{Queue: far, Host: "far", Journal: "j"}
			l.startWorker()
			stopFar := l.serve(far)
			w.do = func(ctx context.Context, step string, n int, f activities.Forward) (activities.Result, error) {
				if step == "c" {
					stopFar()
				}
				return refusing("c")(ctx, step, n, f)
			}
			l.start()
			var waiting compensations.StepReport
			l.awaitState(func(s protocol.State) bool {
				if s.Report == nil {
					return false
				}
				for _, waiting = range s.Report.Steps {
					if waiting.State == string(compensations.Waiting) {
						return true
					}
				}
				return false
			})
			l.serve(far)
			l.awaitCalls("undo b", 1)
			l.decide("b", waiting.Digest, c.do)
			l.decide("b", waiting.Digest, c.late)
			l.awaitState(func(s protocol.State) bool { return len(s.Ignored) == 1 })
			require.Equal(t, 0, w.times("undo a"), "what it needs waits: it may be at work")
			close(letGo)
			if c.do == compensations.Skip && c.undone.Outcome != activities.Restored { // it holds back what it needs
				l.decide("a", l.awaitPark("a", 1), compensations.Accept)
			}
			report, err := l.report()
			requireType(t, err, protocol.TaskFailed)
			require.Equal(t, c.want, outcomes(report))
			require.Equal(t, c.notes, notesOf(report, "b"))
			require.Contains(t, report.Notes[0], "already")
			require.Equal(t, c.status, report.Status)
		})
	}
}
