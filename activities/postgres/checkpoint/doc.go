// Package checkpoint is postgres.checkpoint and postgres.restore: of whole databases.
//
// A checkpoint is an image (image.go): a dump, or a copy that the server has made (copy.go). From
// either a database is made beside the present one, under a name that nobody knows, and compared;
// then the two exchange their names, in one transaction (exchange.go). The undo of
// postgres.checkpoint does that if the database has changed since (undo.go), the forward of
// postgres.restore in any case (replace.go), and the undo of that does it backwards (takeback.go).
// The fence is the name that the replaced database gets, and that a forward opens its connections
// before it finds its token open: an undo closes the token, and then ends them.
//
// Databases are compared by manifests (manifest.go). What the actions need of the journals in the
// databases stands in [RowJournals].
package checkpoint
