package workflows_test

import (
	"context"
	"encoding/base64"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// park waits until a step is parked, for the how manieth time, as people are told, and returns the digest of that.
func (l *live) park(step string, n int) (digest activities.Digest) {
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
	l.signal(compensations.SignalResolve, compensations.Resolution{Step: step, Digest: digest, Do: do, Who: "eve"})
}

func TestWhatAPersonHasDecidedInADeadRunHoldsInItsRecovery(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("b", "c", "d", "e", "f"), do: refusing("f")}
	var forced []activities.Digest
	w.undo = func(step string, n int, d activities.Decision) (activities.Undone, error) {
		switch {
		case step == "e" || step == "b":
			return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
		case step == "d" && n == 1:
			return activities.Undone{Outcome: activities.Drifted, Observed: "changed", Drift: &activities.Drift{Digest: "sha256:theirs"}}, nil
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
	e := l.park("e", 1)
	l.decide("e", "sha256:forged", compensations.Skip)
	l.decide("e", e, compensations.Accept)
	d := l.park("d", 1)
	l.decide("e", e, compensations.Skip)   // it is decided
	l.decide("d", e, compensations.Accept) // that was another park
	l.decide("d", d, compensations.Force)
	l.called("undo d", 2)
	l.decide("d", d, compensations.Accept) // it is parked no more
	l.terminate(l.run.GetID())
	close(letGo)

	run := l.recover()
	b := l.park("b", 1)
	require.NoError(t, l.client.SignalWorkflow(t.Context(), run.WorkflowID, "", compensations.SignalResolve,
		compensations.Resolution{Step: "b", Digest: b, Do: compensations.Skip, Who: "eve"}))
	report := l.ended(run)
	require.Equal(t, compensations.Remains, report.Status)
	require.ElementsMatch(t, []string{
		"f settled restored", "e accepted unknown", "d settled restored", "c settled restored", "b skipped unknown",
	}, outcomes(report))
	require.Equal(t, []activities.Digest{"sha256:theirs"}, forced)
	require.Equal(t, 1, w.times("undo e"), "nobody is asked again")
	require.Len(t, l.alerts, 3)
}

func TestASkipOfADeadRunHoldsAndADeadRecoveryKeepsIt(t *testing.T) {
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
	l.decide("b", l.park("b", 1), compensations.Skip)
	l.decide("a", l.park("a", 1), compensations.Retry) // although b, which builds on it, is skipped
	l.called("undo a", 1)
	l.terminate(l.run.GetID())
	first := l.recover()
	l.called("undo a", 2)
	l.terminate(first.WorkflowID)
	second := l.recover()
	close(letGo)
	report := l.ended(second)
	require.ElementsMatch(t, []string{"c settled restored", "b skipped unknown", "a settled restored"}, outcomes(report))
	require.Equal(t, []string{"undo c", "undo b", "undo a", "undo a", "undo a"}, l.calls()[3:])
}

func TestARecoveryUnwindsInParallelAsTheTaskSays(t *testing.T) {
	steps := chain("a", "b", "c")
	steps[1].Needs = nil
	steps[2].Needs = []string{"a", "b"}
	w := &world{steps: steps, do: hangAt("c", never), compiled: task.Compiled{Unwind: task.UnwindParallel}}
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
	l.called("do c", 1)
	l.terminate(l.run.GetID())
	require.Equal(t, compensations.Unwound, l.ended(l.recover()).Status)
}

// What a dead run has found out is handed to its recovery: shortened, where it is too much.
func TestARunThatHasFoundOutTooMuchIsRecovered(t *testing.T) {
	const n = 60
	steps := long(n)
	for i := range steps {
		steps[i].Needs = nil
	}
	r := mathrand.New(mathrand.NewPCG(1, 2))
	w := &world{steps: steps, do: refusing(steps[n-1].ID), compiled: task.Compiled{Unwind: task.UnwindParallel}}
	w.steps[n-1].Retry = task.Retry{Attempts: 1}
	for _, s := range steps[:n-1] { // the last one begins when all are done
		w.steps[n-1].Needs = append(w.steps[n-1].Needs, s.ID)
	}
	var mu sync.Mutex
	w.undo = func(step string, times int, _ activities.Decision) (activities.Undone, error) {
		if times > 1 || step == steps[n-1].ID {
			return activities.Undone{Outcome: activities.Restored}, nil
		}
		mu.Lock()
		defer mu.Unlock()
		raw := make([]byte, activities.MaxDiff*3/4) // that does not compress
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		diff := base64.StdEncoding.EncodeToString(raw)
		return activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: activities.DigestOf([]byte(diff)), Diff: diff}}, nil
	}
	l := startLive(t, w)
	for _, s := range steps[:n-1] {
		l.park(s.ID, 1)
	}
	l.terminate(l.run.GetID())
	report := l.ended(l.recover())
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, map[string]int{"restored": n}, report.Outcomes)
}

// What a person takes back may be at work: its host is back in the same moment.
func TestAnUndoThatItsHostHasTakenIsWaitedForAlthoughAPersonHasEndedItsWait(t *testing.T) {
	letGo := make(chan struct{})
	w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
	w.undo = func(step string, _ int, _ activities.Decision) (activities.Undone, error) {
		if step == "b" {
			<-letGo
		}
		return activities.Undone{Outcome: activities.Restored}, nil
	}
	l := newLive(t, servertest.Client(t), w)
	far := l.queue + "-far"
	of(w.steps, "b").Undo.HostWait = time.Second
	l.startWorker()
	stopFar := l.serve(far)
	of(w.steps, "b").Place = activities.Place{Queue: far, Host: "far", Journal: "j"}
	w.do = func(ctx context.Context, step string, n int, f activities.Forward) (activities.Result, error) {
		if step == "c" {
			stopFar()
		}
		return refusing("c")(ctx, step, n, f)
	}
	l.start()
	var waiting compensations.StepReport
	l.until(func(s workflows.State) bool {
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
	l.called("undo b", 1)
	l.decide("b", waiting.Digest, compensations.Accept)
	l.decide("b", waiting.Digest, compensations.Skip) // too late
	l.until(func(s workflows.State) bool { return len(s.Ignored) == 1 })
	require.Equal(t, 0, w.times("undo a"), "what it needs waits: it may be at work")
	close(letGo)
	report, err := l.report()
	requireType(t, err, workflows.TaskFailed)
	require.Equal(t, []string{"a settled restored", "b settled restored", "c settled restored"}, outcomes(report))
	require.Equal(t, []string{"accept by eve", "its host had taken it before that: it was undone"}, notesOf(report, "b"))
	require.Contains(t, report.Notes[0], "is being accepted already")
	require.Equal(t, compensations.Unwound, report.Status)
}
