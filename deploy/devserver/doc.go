// Package devserver finds or builds a Temporal server for development and runs it as a child
// process.
//
//	s, err := devserver.Start(ctx, devserver.Options{DB: "dev.db", UI: true, Log: os.Stderr})
//	...
//	defer s.Stop()
//	c, err := client.DialContext(ctx, s.ClientOptions())
//
// If the temporal CLI is on PATH, it is used. Otherwise the server module in deploy/server is built
// once, which takes a few minutes, and kept in the user's cache folder. Both are tuned in the same
// way, have Unwind's search attributes, and end when the process that started them ends, however it
// dies.
//
// Configured says whether to start a server at all: one that the user named, by TEMPORAL_ADDRESS or
// by a profile of the temporal CLI, takes precedence. EnsureSearchAttributes must not be called on
// such a server; MissingSearchAttributes says what to do.
package devserver
