// Package workflows holds the workflows, which only make decisions and have no side effects. They act on the world through the
// activities of package activities, and undo through package compensations.
//
// [AgentTask] runs one task of an agent: it compiles the task, runs each step when its needs are done, waits at gates where a
// person must approve, and unwinds when anything but success ends it. [PlanTask] says what a task would do and touches nothing.
//
// What clients and activities see of them is in package protocol. An AgentTask whose document has session: takes steps while it runs.
//
// AgentTask, [Recover], [Rollback], [Redo] and [LateSweep] are one state machine, agentTask, with different beginnings. It is
// composed of parts, each of which owns its state and can be read without the others:
//
//	schedule    the steps, and which of them may start; knows no Temporal
//	executor    the coroutines that run steps, and what a failure means
//	stepRunner  takes one step through plan, gate, forward and probe (calls: how many activities run at once)
//	gates       the steps that wait for approval, and the decisions on them
//	rollbacks   the parts that are undone while the task goes on
//	pivot       the steps that are never unwound
//	room        whether the ledger still fits into a payload
//	inbox       the signals (package compensations/inbox)
//	session     what a task that takes steps while it runs knows beside its schedule; answers: its requests
//	savepoints  the places that it may roll back to; silence: whether its agent is gone
//	attributes  the search attributes; details: what the Temporal UI shows
package workflows
