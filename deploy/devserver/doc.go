// Package devserver finds or builds a Temporal server for development and runs it as a child process.
//
//	s, err := devserver.Start(ctx, devserver.Options{DB: "dev.db", UI: true, Log: os.Stderr})
//	...
//	defer s.Stop()
//	c, err := client.DialContext(ctx, s.ClientOptions())
//
// The temporal CLI is used where it is on PATH. Otherwise the server module under deploy/server is built once, which
// takes a few minutes, and kept in the user's cache folder. Both are tuned in the same way, have Unwind's search
// attributes and end when the process that started them ends, however that dies.
//
// Whether to start one at all is Configured's answer: a server that the user named, by TEMPORAL_ADDRESS or by a profile
// of the temporal CLI, goes first. There EnsureSearchAttributes is not ours to call; MissingSearchAttributes says what
// to do.
package devserver
