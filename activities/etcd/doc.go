// Package etcd is the world of etcd databases: etcd.txn puts and deletes keys.
//
// # How a change is undone
//
// A step is one transaction of etcd, which happens as a whole or not at all: the puts and deletes
// of the step, the record of its token, and what the keys held before. It happens only if no key
// has changed since it was read, by its mod revision; a range only if no key in it is newer. A step
// whose answer was lost has its record, or has done nothing.
//
// # Drift
//
// The record was created in the transaction of its step, so its create revision is the mod revision
// of every key that the step has put. A key with another one was changed since, unless it has the
// same value and lease: the undo of a later step puts them back, at a revision of its own. The undo
// is one transaction as well, conditional on the mod revisions that were seen. Its keys are read
// once more at the revision of that transaction, and the outcome says what was found.
//
// # Fence
//
// The record is the fence: the transaction of a step happens only if its token has none.
//
// # Leases
//
// A key that had a lease is put back on the same one. If that lease has ended since, the key would
// be gone without the step too: it does not come back.
//
// # Journal
//
// All that is ours begins with unwind/: the random id of the journal, which is part of the place of
// each step, and for each token a record, until it is undone or released what the keys held before,
// and a key while somebody needs the record. Of a step that is undone there is nothing but its
// record; when somebody deletes that, only the history can tell that the step has acted.
package etcd
