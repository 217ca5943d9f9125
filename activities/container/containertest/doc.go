// Package containertest is for tests that need a container: it starts some of a small image, looks
// into them, and clears away what a step has left.
package containertest
