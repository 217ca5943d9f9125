// Package target is about the container that a step acts on: which one it is, what has become of it
// since the step, where the step is written down, and what its checks see.
package target
