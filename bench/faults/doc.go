// Package faults throws the same faults at the usual way of writing a Go saga on Temporal and at
// Unwind, side by side, and counts in the world itself what is left over.
//
// Both sides use one service (counters) in the same way: three additions, each with an idempotency
// key, and taking them back. Both have the same heartbeats and three attempts a step. What differs
// is the saga alone: see usual, and AgentTask.
package faults
