// Package sessions is what a session adds to a task: an agent that takes steps while the task runs,
// names places, rolls back to them and redoes what it has rolled back.
//
// What an agent can ask for is a verb: one file, such as note.go, and its place in the list of
// verbs.go. A verb says what it checks before a request is accepted, and how it is carried out;
// serve has each carried out once, whatever run of the chain meets it, and answer says what has
// come of it. carry is what the next run is handed.
//
// It is an extension of the engine, which it imports, and on which nothing in the engine depends.
// Package workflows/session is the client.
package sessions
