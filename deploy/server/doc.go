// Command server is a Temporal server for development: all services and the UI in one process, on
// one SQLite database.
//
// It is a separate module so that programs that import Unwind do not depend on the Temporal server.
// `starter dev` and `starter demo` build and run it if the temporal CLI is not on PATH; it can also
// be run by hand:
//
//	go run . --db dev.db
//
// When it is ready it prints one line of JSON on stdout:
// {"address":"127.0.0.1:7233","ui":"http://127.0.0.1:8233"}. Errors of the server go to stderr, one
// line each.
package main
