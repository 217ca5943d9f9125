// Package target is about the container that a step acts on: which one it is, and what has become of it since the step.
package target
