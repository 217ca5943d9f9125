// Package tasks is what a Temporal server knows of tasks: it starts, finds and lists them, reads
// their state from a worker, their end or their history, and sends them decisions.
package tasks
