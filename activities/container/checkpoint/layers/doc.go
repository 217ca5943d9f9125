// Package layers takes checkpoints as layers over the root of the running container, which keeps
// its id, its first process and all else after a rollback. It needs a sidecar on the engine
// (package overlay/sidecar) that works as a helper (package overlay/helper), and a container whose
// own processes do not use its files.
//
// Its fence is the door: a folder that a helper puts into the container for the step that is under
// way, and that each of the step's commands starts in. After a rollback there is another door, or
// none, and the engine starts nothing in the old one; what had started is ended before the rollback
// returns.
//
// A manifest in layers says how the container differs from the step's checkpoint; the one from
// before the step is empty.
//
// An engine does not know of the layers over its containers: [Engine] is one that does.
package layers
