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

// broken tests what is left by processes that are killed or stopped at each point of each call.
func (s *suite) broken(t *testing.T) {
	t.Run("broken", func(t *testing.T) {
		plan, apply, undo, want, more := s.discover(t)
		s.each(t, "plan", plan, planKilled, planStopped)
		s.some(t, "plan_killed_and_retried", breakKill, plan, planKilledAndRetried)
		s.each(t, "apply", apply, applyKilled, applyStopped)
		s.some(t, "apply_killed_and_retried", breakKill, want, applyKilledAndRetried)
		s.each(t, "undo", undo, undoKilled, undoStopped)
		for _, each := range more {
			each(t)
		}
	})
}

// runExtra runs what the sample left out, in drawn order, as far as this run goes.
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

// discover runs every call once in a child, and returns the points that each reaches: Plan, Apply without and with an
// approved plan before it, and Undo; and the tests for what not every action has.
func (s *suite) discover(t *testing.T) (plan, apply, undo, want []string, more []func(*testing.T)) {
	t.Run("no_break", func(t *testing.T) {
		w := s.bring(t)
		apply = w.run(order{Op: opApply, Work: w.first}).Points
		undo = w.run(order{Op: opUndo, Work: w.first}).Points
		w.mustBeBefore("after apply and undo in processes of their own")
		w = s.bring(t)
		plan = w.run(order{Op: opPlan, Work: w.first}).Points
		want = w.run(order{Op: opApply, Work: w.first, Want: w.mustPlan(w.first).Digest}).Points
		w.mustUndo(w.first, w.Undone)
		w.mustBeBefore("after plan and apply in processes of their own")
		t.Logf("points (labels): Plan %s, Apply %s, Undo %s", count(plan), count(apply), count(undo))
		if redoes(w) && !s.Brief {
			more = append(more, s.brokenRedos)
		}
		if resets(w) && !s.Brief {
			more = append(more, s.brokenResets)
		}
		if !w.action.Spec().ReadOnly && (len(apply) == 0 || len(undo) == 0) {
			t.Fatalf("Apply reaches the points %q and Undo %q: label what lies between their side effects (activities/point)", apply, undo)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return plan, apply, undo, want, more
}

// count is how many points there are, and of how many labels.
func count(points []string) string {
	labels := slices.Clone(points)
	slices.Sort(labels)
	return fmt.Sprintf("%d (%d)", len(points), len(slices.Compact(labels)))
}

// run runs a child to its end, which must be a good one.
func (w *world) run(o order) report {
	w.t.Helper()
	r := w.spawn(o).wait()
	if r.Error != "" {
		w.t.Fatalf("%s in a process of its own: %s", o.Op, r.Error)
	}
	if o.Op == opUndo && r.Undone.Outcome != w.Undone {
		w.t.Fatalf("undo in a process of its own ended %s, want %s: %s", r.Undone.Outcome, w.Undone, text(r.Undone))
	}
	return r
}

// each breaks a call at each of its points: kills it and stops it, or does EitherWay; of a Brief case, at a sample. A test at a
// point is named for it: one that fails is found again with the seed that drew it.
func (s *suite) each(t *testing.T, call string, points []string, killed, stopped func(*world, int)) {
	killing, stopping := s.deal(testrun.Rand(t), points)
	s.at(t, call+"_killed", breakKill, points, killing, killed)
	s.at(t, call+"_stopped", breakStop, points, stopping, stopped)
}

// deal says at which points, by their labels, a call is killed and at which it is stopped.
func (s *suite) deal(random *rand.Rand, points []string) (killing, stopping map[string]bool) {
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

// some runs a test for each point where no test before has broken the action, and for a sample of the others.
func (s *suite) some(t *testing.T, name, how string, points []string, do func(*world, int)) {
	s.at(t, name, how, points, nil, do)
}

func (s *suite) at(t *testing.T, name, how string, points []string, dealt map[string]bool, do func(*world, int)) {
	called := func(at int) string { return fmt.Sprintf("%02d_%s", at, strings.ReplaceAll(points[at], "/", "_")) }
	t.Run(name, func(t *testing.T) {
		drawn := s.draw(testrun.Rand(t), how, points, dealt)
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

// draw chooses at which of the points that a call reaches it is broken: at the first time of each that was dealt to this way of
// breaking it, or that no test has broken in this way yet, but for what Sample and Brief leave out; and at some of the others.
func (s *suite) draw(random *rand.Rand, how string, points []string, dealt map[string]bool) (drawn []int) {
	seen := map[string]bool{}
	var others []int
	for at, label := range points {
		wanted := dealt[label] || dealt == nil && !s.broke[how+label]
		switch {
		case !seen[label] && (s.Sample == 0 || wanted && !s.Brief || slices.Contains(s.Own, label)):
			drawn = append(drawn, at)
		case dealt == nil || dealt[label] || s.Brief:
			others = append(others, at)
		}
		seen[label] = true
		s.broke[how+label] = true
	}
	if dealt != nil { // the other way has had its share as well
		for label := range seen {
			s.broke[breakKill+label], s.broke[breakStop+label] = true, true
		}
	}
	random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	drawn = append(drawn, others[:min(max(s.Sample, 1), len(others))]...)
	slices.Sort(drawn)
	return drawn
}

// kill lets a child die at a point.
func (w *world) kill(o order, at int) {
	w.t.Helper()
	o.Break, o.At = breakKill, at
	w.spawn(o).mustDie()
}

func planKilled(w *world, at int) {
	w.kill(order{Op: opPlan, Work: w.first}, at)
	w.mustBe(w.before, "after a killed Plan")
	w.mustUndo(w.first, activities.Nothing)
	w.mustBe(w.before, "after the undo of a killed Plan")
	w.mustApply(w.next, w.mustPlan(w.next).Digest)
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
}

// planKilledAndRetried is what a worker's loss between a plan and its gate comes to.
func planKilledAndRetried(w *world, at int) {
	w.kill(order{Op: opPlan, Work: w.first}, at)
	w.mustApply(w.first, w.mustPlan(w.first).Digest)
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func applyKilled(w *world, at int) {
	w.kill(order{Op: opApply, Work: w.first}, at)
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustBeAsTold(undone, "after the undo of a killed Apply")
	_, err := w.apply(w.first, "")
	w.mustFail("Apply after the undo", err, activities.Fenced)
	w.mustBeBefore("after a late Apply")
	w.mustApply(w.next, "")
	w.mustUndo(w.next, w.Undone)
	w.mustBeBefore("after the undo of the next generation")
}

func applyKilledAndRetried(w *world, at int) {
	approved := w.mustPlan(w.first).Digest
	w.kill(order{Op: opApply, Work: w.first, Want: approved}, at)
	result := w.mustApply(w.first, approved)
	left := w.manifest()
	w.mustBeSameResult(result, w.mustApply(w.first, approved))
	w.mustBe(left, "after a third Apply")
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after the undo")
}

func undoKilled(w *world, at int) {
	w.mustApply(w.first, "")
	w.kill(order{Op: opUndo, Work: w.first}, at)
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
	w.outlive(sleeper)
}

func applyStopped(w *world, at int) {
	sleeper := w.spawn(order{Op: opApply, Work: w.first, Break: breakStop, At: at})
	sleeper.mustStop()
	undone := w.mustUndo(w.first, w.Undone, activities.Nothing)
	w.mustBeAsTold(undone, "after the undo of a stopped Apply")
	w.outlive(sleeper)
}

func undoStopped(w *world, at int) {
	w.mustApply(w.first, "")
	sleeper := w.spawn(order{Op: opUndo, Work: w.first, Break: breakStop, At: at})
	sleeper.mustStop()
	w.mustUndo(w.first, w.Undone)
	w.mustBeBefore("after an undo beside a stopped one")
	w.outlive(sleeper)
}

// outlive applies the next generation, wakes the sleeper, and sees to it that the sleeper changes nothing.
func (w *world) outlive(sleeper *child) {
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
