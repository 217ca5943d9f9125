// Package snapshot reads folders, keeps what they hold, and puts back exactly what differs: content,
// modes, owners, times to the nanosecond, extended attributes, hard links, symbolic links, devices,
// holes. What is the same is not touched. A worker that is not root puts back what it may.
//
// # What is kept
//
// A [Store] holds the content of files in chunks, each once, named by its SHA-256, and a tree for
// each snapshot. So a second snapshot of a folder takes what has changed since the first, in time
// as in space: a file whose inode and change time are those of the last tree of the same folder is
// not read again. That is trusted only on filesystems that are known to change these with the
// content, and not for what was changed shortly before it was read. A file is written back before
// it is read, since a page that is mapped into a program and already dirty changes no time.
//
// Nothing waits for a lock: what is no longer needed is first moved aside, and is back if a new
// tree needs it.
//
// # What is late
//
// All that a restore puts into a folder, or takes out of it, is renamed from or to a stage: a
// folder beside it, one for each call. A call first removes the stages of those before it,
// and its own when it is done; a folder that is removed lets nothing be renamed into it or out of
// it, whoever still has it open. Only what a folder itself is like (owner, mode, times, attributes)
// cannot be renamed: for that a call looks just before whether its stage is still there.
//
// # What is left alone
//
// Folders named .unwind, and .unwind- with something after it, hold what Unwind itself keeps: they
// are no part of a snapshot, and what holds one is not removed.
package snapshot
