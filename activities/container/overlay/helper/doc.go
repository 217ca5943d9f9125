// Package helper keeps checkpoints of containers as stacks of layers, in a small process of its own that runs as root on
// the engine's host, or in a sidecar there, and speaks JSON lines over its standard input and output.
//
// # The book
//
// What the layers of a container mean is written in its book, two pages beside them in turn; the book says what has to be,
// the kernel what is, and every request first brings the second to the first (see [stacks.open]): so a stack stands again
// after a restart of the container, of the engine and of the helper, and a change that was cut short is finished or taken
// back. A layer that is below another is never written again. A checkpoint is a list of layers; what no list names is
// removed.
//
// A change waits until its page is on the disk, and nothing waits for the page that says it is over: after a loss of power
// the change is over all the same, for its container has been restarted. Folders of layers that the disk had not noted yet
// are made again, empty, as what was in them is lost.
//
// # Several at once
//
// A request holds the container's lock from its beginning to its end. Another helper on the same folder waits for at most
// half a minute and then says Busy: a helper that is stopped holds nobody up for ever, and nobody does its work twice.
//
// Helpers on different folders lock each other out where it matters: the first layer over a container's own root is put
// there under a lock that all helpers of a host share, and a helper touches no stack that another folder's book has.
//
// # A full disk
//
// No checkpoint is taken where there is little room ([Full]), and then nothing is touched. What fills the disk all the same
// is taken back: a container's layers have a spare (see spareName), which its rollback takes up. Where that is not enough
// either, all stays as it was, but for what the rollback has to end anyway, and it is done when it is asked for again.
package helper
