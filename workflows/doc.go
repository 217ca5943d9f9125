// Package workflows holds the workflows: decisions only, no side effect. What they do to the world, they do through the
// activities of package activities; what they undo, through package compensations.
//
// [AgentTask] runs one task of an agent: compile, then each step when its needs are done, gates where a person must
// approve, and the unwind when anything but success ends it. [PlanTask] says what a task would do and touches nothing.
//
// Clients speak to a task by the signals approve and reject (payload [Decision]) and resolve (payload
// [compensations.Resolution]), by a cancellation, and by the query state (answer [State]).
//
// AgentTask, [Recover], [Rollback], [Redo] and [LateSweep] are one state machine with different beginnings, agentTask. It
// composes parts, each of which owns its state and can be read without the others:
//
//	schedule    the steps, and which of them may start; knows no Temporal
//	executor    the coroutines that run steps, and what a failure means
//	stepRunner  the way of one step: plan, gate, forward, probe (calls: how many activities at once)
//	gates       the steps that wait for approval, and the decisions on them
//	rollbacks   the parts that are undone while the task goes on
//	pivot       the steps that are never unwound
//	room        whether the ledger still fits into a payload
//	inbox       the signals (package compensations/inbox)
//	attributes  the search attributes; details: what the Temporal UI shows
//
// What a run hands to the next one is a [Carry]: it changes its version with its format, and this code reads one version.
package workflows
