// Package examples holds task files that run on real input: a release-publishing agent that fails
// at the very end, one that succeeds, one that is rejected at its gate, and one that is canceled
// while its steps run. `starter demo` plays them, and the end-to-end tests are these files on a
// real Temporal server, a real container engine and a real Terraform.
//
// Command build is an agent's session that builds a real program in a Debian container; command
// library uses the saga engine in a custom workflow.
//
// Package shop is an environment, and the story of an upgrade of it that fails, which `starter demo`
// plays as well.
//
// Folder database has a migration of an SQLite database that fails at its last step, and one over
// PostgreSQL, SQLite and Redis.
//
// Package stage sets up what they work on, and package found observes what became of it, with code
// that shares nothing with the worlds.
package examples
