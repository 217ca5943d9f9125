// Package workflows holds the workflows: decisions only, no side effect. What they do to the world, they do through the
// activities of package activities; what they undo, through package compensations.
//
// [AgentTask] runs one task of an agent: compile, then each step when its needs are done, gates where a person must
// approve, and the unwind when anything but success ends it. [PlanTask] says what a task would do and touches nothing.
//
// Clients speak to a task by the signals approve, reject and resolve (see signals.go for the payloads), by a cancellation,
// and by the query state.
package workflows
