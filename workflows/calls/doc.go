// Package calls is how the code of workflows calls activities: with which options, for how long
// each is tried, and what people see while it fails. It knows steps as they were compiled, and
// entries, but no state of a task.
//
//	call       one activity of a step, of which a bounded number runs at once (Slots)
//	trouble    what is tried until it succeeds (Persist); patience: when that counts as failing
//	compile    a document turned into steps; preflight: hosts that look at them before anything is touched
//	ledger     the entries of a run that is over
//	hold       records that an undo will need; commit: what is to stay; release: what planning has left
//	paused     for how long a workflow heard nobody
//	input      arguments that a run cannot do without
//
// It imports protocol, payload and task.
package calls
