// Package unit stops and starts the units of a worker's host: services that the worker's config
// names, with the commands that stop and start them. A step names a unit and brings no command of
// its own.
//
// The undo of either puts the unit back as it was when the step began, running or stopped; a step
// that found it as it was to be has changed nothing. What runs is asked of the unit, before and
// after.
//
// Each call runs in a process of its own (package isolated), and its commands in the session of
// that process. The fence: an undo first kills the calls of the forward and the commands that they
// have started, and only then acts.
package unit
