// Package volumes keeps copies of folders, as engines keep named volumes in, and brings back what
// differs from them: content, modes, owners, times to the nanosecond, extended attributes, hard
// links, symbolic links, devices, holes. What is the same is not touched. It needs root.
//
// # What is late
//
// All that a restore puts into a volume, or takes out of it, is renamed from or to a stage: a
// folder beside the volume, one for each call. A call first removes the stages of those before it,
// and its own when it is done; a folder that is removed lets nothing be renamed into it or out of
// it, whoever still has it open. Only what a folder itself is like (owner, mode, times, attributes)
// cannot be renamed: for that a call looks just before whether its stage is still there.
package volumes
