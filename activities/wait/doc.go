// Package wait is the world of waiting. wait.for waits for a time, so that a change can show what it
// does before the next one follows. Without a time it waits for nothing: a place for a gate.
//
//   - id: soak
//     uses: wait.for
//     with: { for: 10m }
//
// A call that comes too early says so (activities.NotYet), and the task waits for the rest: no worker
// is needed meanwhile, and no slot of one is taken. The time counts from when the step was put on the
// ledger, so that it is the same for every call.
//
// The world changes nothing and keeps no record. It has no settings, and every worker has it.
package wait
