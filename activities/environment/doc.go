// Package environment takes checkpoints of environments, and rolls them back, as steps of tasks. An
// environment is kept by something else (Keeper): on a worker, by a workflow, which runs a task for
// each of the two. A step runs on the host of its environment.
//
// A step's ids are worked out from its token, and the keeper answers the same for the same id: a
// second attempt is told what the first one has done.
//
// The record is in the world's journal, on the host that also has the checkpoints. The fence: before
// the keeper acts for a step, and after it has begun an operation, of which there is one at a time,
// it asks this journal (Fence). An undo closes the token in the journal, ends what the forward has
// under way, waits until that is over, and only then looks. So what the forward has asked is either
// over by then, and seen, or refused, however late it arrives.
//
// A rollback's undo goes forward to the safety checkpoint. It first compares the environment with
// the checkpoint that was gone back to: what differs is the work of others, and stops it. Each try
// takes a checkpoint of its own first, which is named in the journal before. An undo that finds a
// try that has succeeded does not go forward again, and once an outcome is in the journal no try is
// admitted.
package environment
