// Package mcpserver is the world "mcp": the tools of servers of the Model Context Protocol, each
// call a step. docs/mcp-proxy.md is its manual.
//
// A server keeps no journal for us and knows no tokens, so what undoes a tool is declared (package
// declared): a look, which reads what the call changes, and an inverse. The record, with the inverse
// and what the look saw before the call, is in the journal of this host before the call is sent.
//
// The ticket of a call is the server's own process. Each record names the process whose input the
// call is written to, and an undo that finds no answer kills that process: a late forward writes to
// a pipe that nobody reads. An undo's inverse is fenced in the same way.
package mcpserver
