// Package backendtest holds tests of what each backend of container.exec does on each engine: the one at hand, and one with
// overlay2.
package backendtest
