// Package recovery is the client side of recovering, rolling back and redoing a task after its end:
// it finds the right run, refuses with a clear error what cannot be done, and starts the workflow
// that does it.
//
// Visibility is only a hint. What decides is the description of a workflow id without a run id,
// which the server answers from the run itself: its FirstRunID, its status, and the search
// attribute UnwindStatus, which a task changes in the same transaction that closes it. A closed run
// whose UnwindStatus is "open" has ended without unwinding.
package recovery
