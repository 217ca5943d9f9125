// Package checkpointtest is what each implementation of checkpoint.Backend is tested by, in a short
// test file of its own folder.
package checkpointtest
