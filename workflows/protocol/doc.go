// Package protocol is the data that crosses the border of a workflow: what clients send to a task
// and see of it, what activities are asked and answer, and what a run hands to the next one of its
// chain. Clients, workers and the engine import it; it imports no engine.
//
// Clients talk to a task by the signals approve and reject (payload [Decision]) and resolve
// (payload [Resolution]), or the updates of the same names, by cancellation, and by the query state
// (answer [State]). A session also takes the updates that [UpdateStep] and its neighbors name.
//
// A run hands a [Carry] to the next one of its chain. Its version changes with its format, and this
// code reads one version.
package protocol
