// Package servertest gives tests a real Temporal server, one for each test process.
package servertest
