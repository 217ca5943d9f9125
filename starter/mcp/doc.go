// Package mcp serves sessions to agents over the Model Context Protocol: each action of the catalog
// is a tool, and so is each request that a session takes. docs/mcp.md is its manual.
//
// A call is one request of a session (package workflows/session), carried out once however often it
// is repeated. Nothing is kept between calls: the protocol of 2026-07-28 has no sessions, so the
// handle of ours is an argument, and any server with the same key takes it.
package mcp
