// Package actiontest is the conformance suite of the contract in package activities. Every action
// passes it: ours, and those that you write.
//
// # A first case
//
// Say that your action "shelf.set" sets a value in a file. A test of your package then reads:
//
//	func TestMain(m *testing.M) { os.Exit(actiontest.Main(m, setCase)) }
//
//	func TestSet(t *testing.T) { actiontest.Run(t, setCase) }
//
//	var setCase = actiontest.Case{
//		Name:   "set",
//		Action: "shelf.set",
//		// What is there before the step, below a folder of the test's own.
//		Start: func(t testing.TB, dir string) { write(t, dir, "old") },
//		// The world, as a worker opens it. Journals belong below dir too.
//		Open: func(dir string) (activities.World, error) { return shelf.New(shelf.Config{State: dir}) },
//		// The step, and another one that changes the same resource afterwards.
//		With: func(dir string) any { return map[string]any{"value": "new"} },
//		Next: func(dir string) any { return map[string]any{"value": "newer"} },
//		// The world as text, by code that shares nothing with the action.
//		Manifest: func(t testing.TB, dir string) string { return read(t, dir) },
//		// What someone else does to it after the step: something else at each call.
//		Drift: func(t testing.TB, dir string) { write(t, dir, read(t, dir)+"+") },
//	}
//
// TestMain is needed because the suite kills (SIGKILL) and stops (SIGSTOP) real processes: it
// starts the test binary again, with an order in its environment, which Main executes. Pass all
// cases of a test binary to Main.
//
// The other fields of [Case] are for worlds that need more: checks, a target that can change before
// the step (Meanwhile), an undo that leaves named losses or is impossible (Undone, Same), a
// parameter that holds a secret (Secret), something that lasts as long as its record (Lapses), slow
// calls (Patience), tests that share something and cannot run concurrently (Serial), worlds that
// are slow to set up (Sample).
//
// If the action's Spec offers a redo, it restores exactly what the first apply had left. If
// something new (an id) takes its place, say in Redone what is equivalent; if a redo keeps nothing
// and runs the step again, set Anew.
//
// A complete action that passes, with its test, is in example_test.go of this package. toy_test.go
// has another one, with records and redo, and breaks it in many ways; suite_test.go says which test
// of the suite finds each.
//
// # Points
//
// The suite breaks a process at each point of Plan, Apply and Undo. Points are calls of point.Reach
// in your action, one between any two side effects:
//
//	if _, err := token.Create(journal.Record, &rec); err != nil { ... }
//	point.Reach("shelf.set:recorded")
//	if err := os.Rename(staged, target); err != nil { ... }
//	point.Reach("shelf.set:renamed")
//
// A first run records them in order; then the suite breaks a process at the first, at the second,
// and so on. So a call must reach the same points each time: a loop that waits must not reach one
// in each iteration.
//
// # What is tested
//
//	apply_then_undo            the world is as before (Same), and a late Apply is Fenced
//	plan_touches_nothing       Plan changes nothing and always says the same; undo and release of a mere plan
//	undo_without_apply         nothing-to-undo, and a late Apply is Fenced
//	apply_twice, undo_twice    once, with the same result
//	failed_check               an error after the change: undone like any other
//	two_applies_at_once        two goroutines and a process: once
//	two_undos_at_once          two goroutines and a process: once, with one outcome
//	apply_and_undo_at_once     a further undo leaves the world as before
//	stale_digest               an unapproved change is refused, a change that was made is not judged again
//	changed_meanwhile          the digest covers the target too
//	release                    the record is gone: Apply and Undo no longer act
//	wrong_place                another journal's id is WrongPlace for every call
//	drift                      shown and not touched; a force overwrites exactly what was shown
//	records, records_undone    a world with Records: listed open, committed, undone, released, with owner and
//	                           entry; forgotten
//	records_held               held by two: not released before both are over
//	documents_gone, record_and_spare_gone   documents of a step that acted are gone: a damaged record, or undone
//	                                        rightly
//	records_abandoned          an undo that was given up: the world stays as it is, the record can be released
//	journal_rewound            a journal that was put back to an earlier state is a damaged record, never
//	                           nothing-to-undo
//	redo                       an action with Spec.Redo: as the step had left it, once; undone and redone again
//	                           like any other
//	redo_planned               the digest covers what a redo puts back
//	redo_released              nothing is left to redo from: refused (unless a redo runs Anew; so are the next three)
//	redo_not_rolled_back       refused
//	redo_meanwhile             what someone else has changed since the rollback is not touched
//	redo_drift                 what a forced rollback took away comes back
//	reset                      an action with Spec.Reset: back at its start (Reset), fenced, with its losses
//	secret                     through Temporal's activity environment: in no result, error, diff or log
//	broken/plan_killed         killed at each point of Plan, then undone, then the next generation
//	broken/plan_killed_and_retried   killed at each point of Plan, then planned and applied
//	broken/apply_killed        killed at each point of Apply, then undone, then the next generation
//	broken/apply_killed_and_retried  killed with an approval, then applied again with the same one
//	broken/undo_killed         killed at each point of Undo, then undone
//	broken/apply_stopped       stopped at each point, undone by another process, the next generation applied, woken
//	broken/plan_stopped        the same with Plan
//	broken/undo_stopped        the same with the first of two undos
//	broken/rollback_killed     killed at each point of an undo that can be redone, then rolled back and redone
//	broken/rollback_stopped    stopped at each point, rolled back by another process, redone, woken
//	broken/redo_killed         killed at each point of a redo, then undone, then redone by another one
//	broken/redo_killed_and_retried   killed at each point of a redo, then applied again
//	broken/redo_stopped        stopped at each point of a redo, undone, the next generation applied, woken
//	broken/reset_killed        killed at each point of Reset, then reset again
//	broken/reset_stopped       stopped at each point of Reset, reset by another process, the next generation
//	      /                    applied, woken
//
// # How much of it
//
// A call may reach one point several times: it is broken at the first occurrence, and at a drawn
// one of the others. If a case sets Sample, EitherWay or Brief, more is left to chance, but at
// least one test breaks each point of each call. With UNWIND_TEST_DEEP=1 nothing is left out;
// UNWIND_TEST_SEED, which a package prints first, repeats a draw. See package testrun.
package actiontest
