// Package actiontest is the conformance suite of the contract in package activities. Every action passes it: ours, and
// those that you write.
//
// The suite kills (SIGKILL) and stops (SIGSTOP) real processes, so a test binary that uses it calls Main first:
//
//	func TestMain(m *testing.M) { os.Exit(actiontest.Main(m, cases()...)) }
//	func TestWrite(t *testing.T) { actiontest.Run(t, writeCase) }
package actiontest

import (
	"testing"

	"github.com/seed-62bf7108/unwind/activities"
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
	// With returns the parameters of the step under test, and of the same action's step in the next generation, which
	// makes another change to the same resource.
	With, Next func(dir string) any
	// Checks are the step's checks, with both kinds of When where the world stages.
	Checks []activities.Check
	// Manifest describes everything that the action could have touched, and nothing of journals, by code that shares
	// nothing with the action. Equal manifests are equal worlds.
	Manifest func(t testing.TB, dir string) string
	// Drift changes the resource behind the step's back, after it. Nil: the action has nothing that can drift.
	Drift func(t testing.TB, dir string)
	// Undone is the outcome of an undo after an apply: Restored or Compensated. Defaults to Restored.
	Undone activities.Outcome
	// Same says that manifest after, seen after an undo, is as good as before: for worlds whose undo leaves named losses.
	// Defaults to equality.
	Same func(before, after string) bool
	// Secret is a value that With puts into its parameters as a secret's value; it must be in nothing that is returned.
	Secret string
}
