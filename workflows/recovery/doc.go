// Package recovery is the client side of recovering, rolling back and redoing a task after its end: it finds the run that is
// meant, refuses with a clear error what cannot be done, and starts the workflow that does it.
//
// Visibility is a hint only. What decides is the description of a workflow id without a run id, which the server answers
// from the run itself: its FirstRunID, its status, and the search attribute UnwindStatus, which a task changes in the same
// transaction that closes it. A run that is closed while it says "open" has ended without unwinding.
package recovery
