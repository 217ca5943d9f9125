// Package engine runs one task: it runs each step when its needs are done, waits at gates where a
// person must approve, and unwinds when anything but success ends it. AgentTask, Recover, Rollback,
// Redo and LateSweep are this one state machine, [Task], with different beginnings. It is composed
// of parts, each of which owns its state and can be read without those above it:
//
//	schedule    the steps, and which of them may start; step: one of them. They know no Temporal
//	gates       the steps that wait for approval; parks: those that have failed and wait for a person
//	runner      takes one step through plan, gate, forward and probe
//	pivot       the steps that are never unwound
//	rollbacks   the parts that are undone while the task goes on; asked: those that the agent of a session asks for
//	executor    the coroutines that run steps, and what a failure means
//	task        all of it, and what a session adds (extension)
//	carry       what the next run is handed; room: whether that still fits into a payload;
//	            stuck: what becomes of a task that does not fit
//	state       what people see, with details and report; decisions: what they decide, with correct
//	run         a task from its beginning to its end
//
// It imports calls and what that imports. It knows no workflow that is built on it, and no session
// but as an [Extension].
package engine
