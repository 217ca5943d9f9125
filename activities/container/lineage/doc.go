// Package lineage knows which container took the place of which: one that is made anew, by a
// rollback or a reset, has another id, while the records of earlier steps still name the old one.
//
// The successor of a container is a document that is written once. That makes it the fence between
// two rollbacks of the same container: both build a new one, one gets its own named here, the other
// finds that and removes what it built.
//
// It also knows what steps leave in an engine: their containers by names, and their images by
// comments.
package lineage
