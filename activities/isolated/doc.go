// Package isolated runs each call of a world in a process of its own, started from the worker's
// program. An undo can kill it, whatever state it is in: a stopped process keeps the locks that it
// holds for ever, and may act when it goes on. And it protects such locks from the worker: within
// one process, closing a file drops all POSIX locks on it.
//
//	var calls = isolated.New("unwind-sqlite", serve)       // the world's Kind has calls.Attend
//	err := calls.Run(ctx, journal, isolated.Job[Config]{Op: isolated.Apply, Entry: e, Step: s}, &result)
//
// A call takes the token's lock in its process ([Job.LockToken]), and holds it to its end.
package isolated
