package actiontest

import (
	"os"
	"testing"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// Case is one use of an action. Each test gets its own world.
type Case struct {
	// Name is unique among the cases of a test binary: child processes find their case by it.
	Name string
	// Action is the name of the action under test.
	Action string
	// Start starts what the world needs for one test (a container, an emulator) and makes the
	// resources that exist before the step, below dir, an empty folder. It also writes what Open needs
	// to find them below dir. The processes and servers that it starts end with t.Cleanup. It runs in
	// the test process only.
	Start func(t testing.TB, dir string)
	// Open opens the world that Start made as a worker would, with its journals below dir. Several
	// processes and goroutines open it at once.
	Open func(dir string) (activities.World, error)
	// With returns the parameters of the step under test, and Next those of the same action's step in
	// the next generation, which makes another change to the same resource.
	With, Next func(dir string) any
	// Checks are the step's checks, with both kinds of When if the world stages.
	Checks []activities.Check
	// Manifest describes everything that the action could have touched, except for journals, by code
	// that shares nothing with the action. Equal manifests are equal worlds.
	Manifest func(t testing.TB, dir string) string
	// Drift changes the resource behind the step's back, after it; each call makes another change. Nil
	// if nothing can drift.
	Drift func(t testing.TB, dir string)
	// Meanwhile changes the step's target between its plan and its apply. Nil if the target does not
	// exist before.
	Meanwhile func(t testing.TB, dir string)
	// Undone is the outcome of an undo after an apply: Restored, Compensated, or Final for what cannot
	// be undone. Defaults to Restored.
	Undone activities.Outcome
	// Same reports whether manifest after, taken after an undo, is equivalent to before: for worlds
	// whose undo leaves named losses. If Undone is Final, it accepts, for each of the two generations,
	// the state before and the effect of one forward. Defaults to equality.
	Same func(before, after string) bool
	// Redone reports whether manifest now, taken after a redo, is equivalent to left, from after the
	// first apply: for worlds in which something new (an id) replaces what was rolled back. Defaults
	// to equality. It is used only for actions whose Spec has Redo.
	Redone func(left, now string) bool
	// Anew means that a redo runs the forward again and needs nothing kept: neither later changes nor
	// a release stop it.
	Anew bool
	// Lapses means that what the step has made lasts as long as its record: a release makes the world
	// as before.
	Lapses bool
	// Brief leaves out breaking rollback, redo and reset at each of their points, and half of the
	// tests that break nothing, because another case of the same code does that.
	Brief bool
	// Sample is the number of points at which the tests of retries, rollback, redo and reset break the
	// action although another test of the case has already broken it there in the same way (killed or
	// stopped). They are drawn by the run's seed. It is for worlds that are slow to set up: of their
	// tests, a run takes a share only (testrun.Sampled). In a Brief case every test takes a sample.
	// Defaults to all points.
	Sample int
	// EitherWay means that Plan, Apply and Undo are either killed or stopped at each of their points,
	// by chance, and not both: for worlds in which a test takes seconds of processor time.
	EitherWay bool
	// Own are points of a Brief case that its other case does not reach: no Sample omits them.
	Own []string
	// Reset reports whether manifest after, taken after a reset, is the resource's start. Defaults to
	// Same.
	Reset func(before, after string) bool
	// Secret is the value of a secret in With's parameters; nothing that is returned may contain it.
	Secret string
	// Patience bounds one call of the action. Defaults to one minute.
	Patience time.Duration
	// Serial keeps the case's tests from running concurrently, for worlds that share something.
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

// Main runs a test binary: its tests, whose exit status it returns; or, in a process that Run has
// started, one call of one action, with which that process ends.
func Main(m *testing.M, cases ...Case) int {
	if order := os.Getenv(orderVariable); order != "" {
		os.Exit(runOrder(order, cases)) // and not back to a TestMain that clears up what the tests still use
	}
	return testrun.RunWaiting(m)
}

// Run tests that an action keeps the contract in package activities. See package testrun for what a
// run leaves out.
func Run(t *testing.T, c Case) {
	c = c.withDefaults()
	s := &suite{Case: c, covered: map[string]bool{}}
	var all []oneTest
	add := func(name string, do func(*world)) { all = append(all, oneTest{name, do}) }
	add(plainest, applyThenUndo)
	add("plan_touches_nothing", planTouchesNothing)
	add("undo_without_apply", undoWithoutApply)
	add("apply_twice", applyTwice)
	add("undo_twice", undoTwice)
	add("failed_check", failedCheck)
	add("two_applies_at_once", twoAppliesAtOnce)
	add("two_undos_at_once", twoUndosAtOnce)
	add("apply_and_undo_at_once", applyAndUndoAtOnce)
	add("stale_digest", staleDigest)
	add("unapproved", having(changes, unapproved))
	add("release", release)
	add("wrong_place", wrongPlace)
	if c.Drift != nil {
		add("drift", drift)
	}
	if c.Meanwhile != nil {
		add("changed_meanwhile", changedMeanwhile)
	}
	if c.Secret != "" {
		add("secret", testSecret)
	}
	add("records", having(lists, records))
	add("records_undone", having(lists, recordsUndone))
	add("records_held", having(lists, recordsHeld))
	add("documents_gone", having(lists, documentsGone))
	add("record_and_spare_gone", having(lists, recordAndSpareGone))
	add("journal_rewound", having(lists, journalRewound))
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
	s.testBroken(t)
	s.testDocuments(t)
	s.runExtra(t)
}

// plainest is the test that every run includes.
const plainest = "apply_then_undo"

// oneTest is a test of the suite that breaks nothing.
type oneTest struct {
	name string
	do   func(*world)
}

// drawTests decides which tests a plain run includes: all of them, or, of a Brief case, the first,
// that of drift, and half of the others.
func (s *suite) drawTests(t *testing.T, all []oneTest) []bool {
	runs := make([]bool, len(all))
	for i, place := range testrun.Rand(t).Perm(len(all)) {
		runs[i] = !s.Brief || place < len(all)/2 || i == 0 || all[i].name == "drift"
	}
	return runs
}

// Conditions on the action of a case.
func redoes(w *world) bool  { return w.action.Spec().Redo != "" }
func resets(w *world) bool  { return w.action.Spec().Reset != "" && w.Undone != activities.Nothing }
func changes(w *world) bool { return !w.action.Spec().ReadOnly }
func lists(w *world) bool   { return w.opened.Records != nil && !w.action.Spec().ReadOnly }

// having returns a test that runs only if the condition it holds.
func having(it func(*world) bool, do func(*world)) func(*world) {
	return func(w *world) {
		if !it(w) {
			w.t.Skip("the action does not have this")
		}
		do(w)
	}
}

// suite is a case under test.
type suite struct {
	Case
	// covered are the points at which the action was broken, with the way in which it was.
	covered map[string]bool
	// extra are the tests that the sample left out.
	extra []func(*testing.T)
}

// test runs one test in its own world, unless one of begin skips it.
func (s *suite) test(t *testing.T, name string, do func(*world), begin ...func(testing.TB)) {
	t.Run(name, func(t *testing.T) {
		if !s.Serial {
			t.Parallel()
		}
		for _, each := range begin {
			each(t)
		}
		if s.Sample > 0 && len(begin) == 0 && name != plainest {
			testrun.Sampled(t)
		}
		do(s.newWorld(t))
	})
}
