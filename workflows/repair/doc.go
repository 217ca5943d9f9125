// Package repair holds the workflows about tasks that are over: [Recover] unwinds one that ended
// without unwinding, [Rollback] undoes one that has committed, [Redo] repeats what was rolled back,
// and [LateSweep] looks again at undos that were too early to be sure. They are tasks of package
// engine with other beginnings. [Sweep], [Retain] and [Orphans] have a worker look after what is
// left.
//
// It imports engine and calls.
package repair
