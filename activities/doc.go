// Package activities is the contract between the saga engine and the worlds that a task changes.
//
// A world is a kind of thing: files, containers, Terraform state, SQLite databases, Stripe. Each
// verb in it is an [Action] that can make its change and undo it. The engine never sees a world: it
// holds an [Entry] for each step, schedules the action's activities by name, and reads their
// results. A world never sees a workflow: it gets an Entry and a [Step], and keeps what an undo
// needs in a journal next to the change.
//
// An action NAME is registered with a worker as five activities (see [Registry.Register]):
//
//	NAME          Action.Apply, the forward      arguments [Forward], result [Result]
//	NAME.plan     Action.Plan                    arguments [Forward], result [Change]
//	NAME.undo     Action.Undo                    arguments [Backward], result [Undone]
//	NAME.observe  Action.Observe                 argument  [Entry],    result [Observation]
//	NAME.release  Action.Release                 argument  [Entry]
//
// Around each of them the worker's wrapper resolves secrets, heartbeats, refuses to go forward in a
// run that was reset, masks every secret in the result and caps it, and turns errors into
// ApplicationErrors of the types in errors.go.
package activities
