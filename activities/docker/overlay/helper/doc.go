// Package helper keeps checkpoints of containers as stacks of layers. It runs as root in a small
// process of its own on the engine's host, or in a sidecar there, and speaks JSON lines on standard
// input and output.
//
// # The book
//
// What the layers of a container mean is recorded in its book, two pages beside them that are
// written in turn. The book says what should be mounted, the kernel what is, and every request
// first reconciles the two (see [stacks.open]): so a stack is mounted again after a restart of the
// container, the engine or the helper, and an interrupted change is finished or reverted. A layer
// below another is never written to again. A checkpoint is a list of layers; a layer on no list is
// removed.
//
// A change waits until its page is synced. The page that records its end is not waited for: a power
// loss restarts the container, so the change is over anyway. Layer folders that had not reached the
// disk are made again, empty, as their content is lost.
//
// # Concurrency
//
// A request holds the container's lock from beginning to end. Another helper on the same folder
// waits for at most half a minute and then returns Busy: a stopped helper blocks nobody for ever,
// and no work is done twice.
//
// Helpers on different folders exclude each other where it matters: the first layer over a
// container's own root is mounted under a lock that all helpers of a host share, and a helper
// leaves alone a stack in another folder's book.
//
// # A full disk
//
// No checkpoint is taken when space is short ([Full]), and then nothing is touched. A step that
// fills the disk all the same can be undone: a container's layers have spare space (see spareName),
// which a rollback uses. If that is not enough, everything stays as it was, except for what the
// rollback has to end anyway, and the request can be made again.
package helper
