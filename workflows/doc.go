// Package workflows puts the workflows together, and registers them. They only make decisions and
// have no side effects: they act on the world through the activities of package activities, and
// undo through package compensations.
//
// [AgentTask] runs one task of an agent: it compiles the task, and has the engine run it, with a
// session where its document asks for one.
//
//	payload     measures and shortens what leaves a workflow; packed: carries large values
//	task        the task file
//	protocol    what clients, activities and the next run see
//	calls       how workflows call activities
//	engine      one task
//	sessions    what a session adds to it
//	repair      recover, roll back, redo, look again, retain
//	planning    what a task would do
//	notices     tell people what waits for them
//
// Each imports only those above it, and notices, planning, repair and sessions do not know each
// other.
// Clients, such as recovery and session, import protocol and no engine.
package workflows
