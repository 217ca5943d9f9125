// Package checkpoint is postgres.checkpoint. It dumps a database; its undo restores the dump beside
// the database, if that has changed, and exchanges the two.
//
// Databases are compared by manifests (manifest.go). The exchange is one transaction of two renames
// (exchange.go); its fence is the name that the replaced database gets. What it needs of the
// journals in the databases stands in [RowJournals].
package checkpoint
