package actiontest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// testBroken tests what processes leave that are killed or stopped at each point of each call.
func (s *suite) testBroken(t *testing.T) {
	t.Run("broken", func(t *testing.T) {
		plan, apply, undo, want, more := s.discoverPoints(t)
		s.breakAtEach(t, "plan", plan, planKilled, planStopped)
		s.breakAtSome(t, "plan_killed_and_retried", breakKill, plan, planKilledAndRetried)
		s.breakAtEach(t, "apply", apply, applyKilled, applyStopped)
		s.breakAtSome(t, "apply_killed_and_retried", breakKill, want, applyKilledAndRetried)
		s.breakAtEach(t, "undo", undo, undoKilled, undoStopped)
		for _, each := range more {
			each(t)
		}
	})
}

// runExtra runs the tests that the sample left out, in drawn order, for as long as this run allows.
func (s *suite) runExtra(t *testing.T) {
	if testrun.Plain() {
		return
	}
	random := testrun.Rand(t)
	random.Shuffle(len(s.extra), func(i, j int) { s.extra[i], s.extra[j] = s.extra[j], s.extra[i] })
	t.Run("extra", func(t *testing.T) {
		for _, each := range s.extra {
			each(t)
		}
	})
}

// discoverPoints runs every call once in a child, and returns the points that each reaches: Plan,
// Apply without and with an approved plan before it, and Undo. It also returns the tests for what
// not every action has.
func (s *suite) discoverPoints(t *testing.T) (plan, apply, undo, want []string, more []func(*testing.T)) {
	t.Run("no_break", func(t *testing.T) {
		w := s.newWorld(t)
		apply = w.runChild(order{Op: opApply, Work: w.first}).Points
		undo = w.runChild(order{Op: opUndo, Work: w.first}).Points
		w.mustBeBefore("after apply and undo in processes of their own")
		w = s.newWorld(t)
		plan = w.runChild(order{Op: opPlan, Work: w.first}).Points
		want = w.runChild(order{Op: opApply, Work: w.first, Want: w.mustPlan(w.first).Digest}).Points
		w.mustUndo(w.first, w.Undone)
		w.mustBeBefore("after plan and apply in processes of their own")
		t.Logf("points (labels): Plan %s, Apply %s, Undo %s", countPoints(plan), countPoints(apply), countPoints(undo))
		if redoes(w) && !s.Brief {
			more = append(more, s.brokenRedos)
		}
		if resets(w) && !s.Brief {
			more = append(more, s.brokenResets)
		}
		if !w.action.Spec().ReadOnly && (len(apply) == 0 || len(undo) == 0) {
			t.Fatalf("Apply reaches the points %q and Undo %q: label what lies between their side effects (activities/point)",
				apply, undo)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return plan, apply, undo, want, more
}

// countPoints says how many points there are, and how many labels they have.
func countPoints(points []string) string {
	labels := slices.Clone(points)
	slices.Sort(labels)
	return fmt.Sprintf("%d (%d)", len(points), len(slices.Compact(labels)))
}

// runChild runs a child to its end, which must be a success.
func (w *world) runChild(o order) report {
	w.t.Helper()
	r := w.spawn(o).wait()
	if r.Error != "" {
		w.t.Fatalf("%s in a process of its own: %s", o.Op, r.Error)
	}
	if o.Op == opUndo && r.Undone.Outcome != w.Undone {
		w.t.Fatalf("undo in a process of its own ended %s, want %s: %s", r.Undone.Outcome, w.Undone, asJSON(r.Undone))
	}
	return r
}

// breakAtEach breaks a call at each of its points, or, in a Brief case, at a sample of them. It
// kills it and stops it, or does one of both if EitherWay is set. A test is named for its point, so
// that a failed one can be found again with the seed that drew it.
func (s *suite) breakAtEach(t *testing.T, call string, points []string, killed, stopped func(*world, int)) {
	killing, stopping := s.dealPoints(testrun.Rand(t), points)
	s.breakAt(t, call+"_killed", breakKill, points, killing, killed)
	s.breakAt(t, call+"_stopped", breakStop, points, stopping, stopped)
}

// dealPoints decides at which labels a call is killed and at which it is stopped.
func (s *suite) dealPoints(random *rand.Rand, points []string) (killing, stopping map[string]bool) {
	killing, stopping = map[string]bool{}, map[string]bool{}
	labels := slices.Clone(points)
	slices.Sort(labels)
	labels = slices.Compact(labels)
	random.Shuffle(len(labels), func(i, j int) { labels[i], labels[j] = labels[j], labels[i] })
	first := random.IntN(2)
	for i, label := range labels {
		killing[label] = !s.EitherWay || i%2 == first
		stopping[label] = !s.EitherWay || i%2 != first
	}
	return killing, stopping
}

// breakAtSome runs a test for each point at which no earlier test has broken the action, and for a
// sample of the others.
func (s *suite) breakAtSome(t *testing.T, name, how string, points []string, do func(*world, int)) {
	s.breakAt(t, name, how, points, nil, do)
}

func (s *suite) breakAt(t *testing.T, name, how string, points []string, dealt map[string]bool, do func(*world, int)) {
	called := func(at int) string { return fmt.Sprintf("%02d_%s", at, strings.ReplaceAll(points[at], "/", "_")) }
	t.Run(name, func(t *testing.T) {
		drawn := s.drawPoints(testrun.Rand(t), how, points, dealt)
		for at := range points {
			if !slices.Contains(drawn, at) {
				s.extra = append(s.extra, func(t *testing.T) {
					s.test(t, name+"_"+called(at), func(w *world) { do(w, at) }, testrun.Extra)
				})
			}
		}
		if !s.Serial {
			t.Parallel()
		}
		for _, at := range drawn {
			s.test(t, called(at), func(w *world) { do(w, at) })
		}
	})
}

// drawPoints chooses at which of its points a call is broken: at the first occurrence of each that
// was dealt to this way of breaking it, or that no test has broken in this way yet, except for what
// Sample and Brief leave out; and at some of the others.
func (s *suite) drawPoints(random *rand.Rand, how string, points []string, dealt map[string]bool) (drawn []int) {
	seen := map[string]bool{}
	var others []int
	for at, label := range points {
		wanted := dealt[label] || dealt == nil && !s.covered[how+label]
		switch {
		case !seen[label] && (s.Sample == 0 || wanted && !s.Brief || slices.Contains(s.Own, label)):
			drawn = append(drawn, at)
		case dealt == nil || dealt[label] || s.Brief:
			others = append(others, at)
		}
		seen[label] = true
		s.covered[how+label] = true
	}
	if dealt != nil { // the other way has had its share as well
		for label := range seen {
			s.covered[breakKill+label], s.covered[breakStop+label] = true, true
		}
	}
	random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	drawn = append(drawn, others[:min(max(s.Sample, 1), len(others))]...)
	slices.Sort(drawn)
	return drawn
}

// killChild makes a child die at a point.
func (w *world) killChild(o order, at int) {
	w.t.Helper()
	o.Break, o.At = breakKill, at
	w.spawn(o).mustDie()
}

func planKilled(w *world, at int) {
	w.killChild(order{Op: opPlan, Work: w.first}, at)
	w.mustBe(w.before, "after a killed Plan")
	w.mustUndo(w.first, activities.Nothing)
	w.mustBe(w.before, "after the undo of a killed Plan")
	w.mustApply(w.next, w.mustPlan(w.next).Digest)
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
}

// planKilledAndRetried is the loss of a worker between a plan and its gate.
func planKilledAndRetried(w *world, at int) {
	w.killChild(order{Op: opPlan, Work: w.first}, at)
	w.mustApply(w.first, w.mustPlan(w.first).Digest)
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func applyKilled(w *world, at int) {
	w.killChild(order{Op: opApply, Work: w.first}, at)
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustMatchOutcome(undone, "after the undo of a killed Apply")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
	w.mustApply(w.next, "")
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
}

func applyKilledAndRetried(w *world, at int) {
	approved := w.mustPlan(w.first).Digest
	w.killChild(order{Op: opApply, Work: w.first, Want: approved}, at)
	result := w.mustApply(w.first, approved)
	left := w.manifest()
	w.mustBeSameResult(result, w.mustApply(w.first, approved))
	w.mustBe(left, "after a third Apply")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func undoKilled(w *world, at int) {
	w.mustApply(w.first, "")
	w.killChild(order{Op: opUndo, Work: w.first}, at)
	first := w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the second attempt of an undo")
	w.mustBeSameUndone(first, w.mustUndo(w.first, w.Undone))
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
}

func planStopped(w *world, at int) {
	sleeper := w.spawn(order{Op: opPlan, Work: w.first, Break: breakStop, At: at})
	sleeper.mustStop()
	w.mustUndo(w.first, activities.Nothing)
	w.mustBe(w.before, "after the undo of a stopped Plan")
	w.outliveSleeper(sleeper)
}

func applyStopped(w *world, at int) {
	sleeper := w.spawn(order{Op: opApply, Work: w.first, Break: breakStop, At: at})
	sleeper.mustStop()
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustMatchOutcome(undone, "after the undo of a stopped Apply")
	w.outliveSleeper(sleeper)
}

func undoStopped(w *world, at int) {
	w.mustApply(w.first, "")
	sleeper := w.spawn(order{Op: opUndo, Work: w.first, Break: breakStop, At: at})
	sleeper.mustStop()
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after an undo beside a stopped one")
	w.outliveSleeper(sleeper)
}

// outliveSleeper applies the next generation, wakes the sleeper, and checks that it changes
// nothing.
func (w *world) outliveSleeper(sleeper *child) {
	w.t.Helper()
	w.mustApply(w.next, "")
	left := w.manifest()
	sleeper.wake()
	sleeper.wait()
	w.mustBe(left, "after a process that was stopped before the undo has woken up")
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
	settled := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustBeSameUndone(settled, w.mustUndo(w.first, w.Undone, activities.Nothing))
	w.mustBeBefore("after a further undo of the first")
}
