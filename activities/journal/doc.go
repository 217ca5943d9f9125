// Package journal keeps the undo records of a world: a folder per token, made of documents that are
// written once.
//
// A document is linked to its name only when it is complete and synced, and link(2) refuses a name
// that exists. So a document is there completely or not at all, the first writer of a name wins,
// and every later one reads what the first has written. There is no state anywhere else, and no
// step of a fence waits for a lock that a stopped process could hold.
//
// The documents that exist tell the state of a token:
//
//	nothing             unused
//	record              Apply has captured the pre-image; the change may or may not have happened
//	record, applied     the change is done and was observed
//	fate: undoing       an undo has begun; no forward may act any more (the tombstone)
//	fate: releasing     the rollback window has closed; no forward and no undo may act any more
//	outcome             the undo is done; every further undo returns this
//	committed           the task has committed: until when the record is kept
//	hold-1, hold-2 ...  who needs the record for an undo after the end of its task; the last one counts
//	released            only the fate and the audit trail are left: the owner (owned) and its outcome
//	fate alone          forgotten; the tombstone stays
//
// A record has a second name, record-spare, that is read where the first is deleted, and so has
// each hold. Each document says of which token it is. Where there is no record, CheckNotLost tells
// whether there never was one.
//
// A fate outranks committed, whichever was written first. Records lists the tokens.
//
// A journal belongs to one world in one worker's state folder. Its random ID is made once: a
// journal that was lost and made again has another ID, so an undo returns WrongPlace, never
// "nothing to undo". One that was put back to an earlier state does not know the epoch in which the
// step was compiled (Mark), so the undo returns DamagedRecord.
package journal
