package actiontest

import (
	"os"
	"testing"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// Case is one use of an action, in a world of its own for each test.
type Case struct {
	// Name is unique among the cases of a test binary: a child process finds its case by it.
	Name string
	// Action is the name of the action under test.
	Action string
	// Start brings up what the world needs for one test (a container, an emulator) and the resources that are there
	// before the step, below dir, an empty folder. What Open needs to find it again is written below dir too. The
	// processes and servers that it starts end with t.Cleanup. It runs in the test process only.
	Start func(t testing.TB, dir string)
	// Open opens the world that Start made, the way a worker would, with its journals below dir. Several processes and
	// goroutines open it at once.
	Open func(dir string) (activities.World, error)
	// With returns the parameters of the step under test, and Next those of the same action's step in the next
	// generation, which makes another change to the same resource.
	With, Next func(dir string) any
	// Checks are the step's checks, with both kinds of When where the world stages.
	Checks []activities.Check
	// Manifest describes everything that the action could have touched, and nothing of journals, by code that shares
	// nothing with the action. Equal manifests are equal worlds.
	Manifest func(t testing.TB, dir string) string
	// Drift changes the resource behind the step's back, after it; each call makes another change. Nil: the action has
	// nothing that can drift.
	Drift func(t testing.TB, dir string)
	// Meanwhile changes the step's target before the step, between its plan and its apply. Nil: a target that is not
	// there before cannot change.
	Meanwhile func(t testing.TB, dir string)
	// Undone is the outcome of an undo after an apply: Restored, Compensated, or Final for what cannot be taken back. Defaults
	// to Restored.
	Undone activities.Outcome
	// Same says that manifest after, seen after an undo, is as good as before: for worlds whose undo leaves named losses.
	// Where Undone is Final, it accepts for each of the two generations what was before and the effect of one forward.
	// Defaults to equality.
	Same func(before, after string) bool
	// Redone says that manifest now, seen after a redo, is as good as left, from after the first apply: for worlds in which
	// something new (an id) takes the place of what was rolled back. Defaults to equality. Only actions whose Spec says
	// in Redo how they are redone are asked for one.
	Redone func(left, now string) bool
	// Anew says that a redo goes forward anew, and keeps nothing: it is not held back by what has changed or was released.
	Anew bool
	// Brief leaves out breaking rollback, redo and reset at each of their points, and half of the tests that break nothing:
	// another case of the same code does that.
	Brief bool
	// Sample is at how many points the tests of retries, rollback, redo and reset break the action where another test of the
	// case has broken it in the same way (killed, or stopped) already, drawn by the run's seed: for worlds that are slow to
	// set up. Of a Brief case every test takes a sample. Defaults to all points.
	Sample int
	// EitherWay says that Plan, Apply and Undo are killed or stopped at each of their points, as it is drawn, and not both: for
	// worlds in which a test takes seconds of the processor.
	EitherWay bool
	// Own are points of a Brief case that the other one does not come by: no sample leaves them out.
	Own []string
	// Reset says that manifest after, seen after a reset, is the resource's start. Defaults to Same.
	Reset func(before, after string) bool
	// Secret is a value that With puts into its parameters as a secret's value; it must be in nothing that is returned.
	Secret string
	// Patience bounds one call of the action. Defaults to one minute.
	Patience time.Duration
	// Serial keeps the case's tests from running beside each other, for worlds that share something.
	Serial bool
}

func (c Case) withDefaults() Case {
	if c.Undone == "" {
		c.Undone = activities.Restored
	}
	if c.Same == nil {
		c.Same = func(before, after string) bool { return before == after }
	}
	if c.Redone == nil {
		c.Redone = func(left, now string) bool { return left == now }
	}
	if c.Reset == nil {
		c.Reset = c.Same
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	return c
}

// Main runs a test binary: its tests, or, in a process that Run has started, one call of one action. Its result is the
// exit status.
func Main(m *testing.M, cases ...Case) int {
	if order := os.Getenv(orderVariable); order != "" {
		return serve(order, cases)
	}
	return testrun.RunWaiting(m)
}

// Run tests that an action keeps the contract in package activities. See package testrun for what a run leaves out.
func Run(t *testing.T, c Case) {
	c = c.withDefaults()
	s := &suite{Case: c, broke: map[string]bool{}}
	var all []oneTest
	add := func(name string, do func(*world)) { all = append(all, oneTest{name, do}) }
	add("apply_then_undo", applyThenUndo)
	add("plan_touches_nothing", planTouchesNothing)
	add("undo_without_apply", undoWithoutApply)
	add("apply_twice", applyTwice)
	add("undo_twice", undoTwice)
	add("failed_check", failedCheck)
	add("two_applies_at_once", twoAppliesAtOnce)
	add("two_undos_at_once", twoUndosAtOnce)
	add("apply_and_undo_at_once", applyAndUndoAtOnce)
	add("stale_digest", staleDigest)
	add("release", release)
	add("wrong_place", wrongPlace)
	if c.Drift != nil {
		add("drift", drift)
	}
	if c.Meanwhile != nil {
		add("changed_meanwhile", changedMeanwhile)
	}
	if c.Secret != "" {
		add("secret", secret)
	}
	add("records", having(lists, records))
	add("records_undone", having(lists, recordsUndone))
	if c.Drift != nil {
		add("records_abandoned", having(lists, recordsAbandoned))
	}
	add("redo", having(redoes, redoThenUndo))
	add("redo_planned", having(redoes, redoPlanned))
	if !c.Anew {
		add("redo_released", having(redoes, redoReleased))
		add("redo_not_rolled_back", having(redoes, redoNotRolledBack))
	}
	if !c.Anew && c.Drift != nil {
		add("redo_drift", having(redoes, redoDrift))
	}
	if !c.Anew && c.Meanwhile != nil {
		add("redo_meanwhile", having(redoes, redoMeanwhile))
	}
	add("reset", having(resets, reset))
	for i, each := range s.drawTests(t, all) {
		if each {
			s.test(t, all[i].name, all[i].do)
		} else {
			s.extra = append(s.extra, func(t *testing.T) { s.test(t, all[i].name, all[i].do, testrun.Extra) })
		}
	}
	s.broken(t)
	s.runExtra(t)
}

// oneTest is a test of the suite that breaks nothing.
type oneTest struct {
	name string
	do   func(*world)
}

// drawTests says which tests are run in any case: all of them; of a Brief case the first, that of drift, and half of the others.
func (s *suite) drawTests(t *testing.T, all []oneTest) []bool {
	runs := make([]bool, len(all))
	for i, place := range testrun.Rand(t).Perm(len(all)) {
		runs[i] = !s.Brief || place < len(all)/2 || i == 0 || all[i].name == "drift"
	}
	return runs
}

// What not every action has: a world of the case tells.
func redoes(w *world) bool { return w.action.Spec().Redo != "" }
func resets(w *world) bool { return w.action.Spec().Reset != "" && w.Undone != activities.Nothing }
func lists(w *world) bool  { return w.opened.Records != nil && !w.action.Spec().ReadOnly }

// having is a test for actions that have something.
func having(it func(*world) bool, do func(*world)) func(*world) {
	return func(w *world) {
		if !it(w) {
			w.t.Skip("the action does not have this")
		}
		do(w)
	}
}

// suite is a case at test.
type suite struct {
	Case
	// broke are the ways in which the action was broken with the points where it was.
	broke map[string]bool
	// extra are the tests that the sample left out.
	extra []func(*testing.T)
}

// test runs one test in a world of its own, if each of begin lets it.
func (s *suite) test(t *testing.T, name string, do func(*world), begin ...func(testing.TB)) {
	t.Run(name, func(t *testing.T) {
		if !s.Serial {
			t.Parallel()
		}
		for _, each := range begin {
			each(t)
		}
		do(s.bring(t))
	})
}
