// Package journal keeps the undo records of a world: one folder a token, made of documents that are written once.
//
// A document is linked to its name only when it is whole and on the disk, and link(2) refuses a name that is taken. So a
// document is there wholly or not at all, the first writer of a name wins, and every later one reads what the first has
// written. No state lives anywhere else, and no step of a fence waits on a lock that a stopped process could hold.
//
// A token's life, told by which documents are there:
//
//	nothing             nobody has touched it
//	record              Apply has captured the pre-image; the change may or may not have happened
//	record, applied     the change is done and was seen
//	fate: undoing       an undo has begun; no forward may act any more (the tombstone)
//	fate: releasing     the rollback window has closed; no forward and no undo may act any more
//	outcome             the undo is done; every further undo returns this
//	committed           the task has committed: until when the record is kept
//	released            nothing is left but the fate and the audit trail: whose it was (owned) and its outcome
//	fate alone          forgotten; the tombstone stays
//
// A fate counts for more than committed, whatever was written first. Records lists what there is.
//
// A journal belongs to one world of one worker's state folder. Its id is random and made once: a journal that was lost
// and made anew has another id, so that an undo says WrongPlace and never "nothing to undo".
package journal
