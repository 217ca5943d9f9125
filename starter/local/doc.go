// Package local runs a worker in this process, on a Temporal server of its own or on a named one,
// and lets other commands find it.
package local
