// Package sqlite is the world of SQLite databases: sqlite.exec runs statements in one transaction
// and can take them back, row by row; sqlite.query reads. sqlite.checkpoint keeps a database as a whole,
// sqlite.restore puts it back, sqlite.verify and sqlite.compare read what was kept.
//
//	w, err := sqlite.New(sqlite.Config{State: "/var/lib/unwind/sqlite", Roots: []string{"/srv/app/data"}})
//
//	- id: raise
//	  uses: sqlite.exec
//	  with:
//	    database: /srv/app/data/app.db
//	    statements:
//	      - { sql: "UPDATE price SET cents = cents + ? WHERE kind = ?", params: [50, book], changes: 3 }
//
// # How a change is captured
//
// SQLite calls a hook before it changes a row, whatever makes it: a statement, a trigger, a
// cascading foreign key, the REPLACE of a conflict. Its own sessions are built on that hook, but
// they see only tables with a primary key, no rows with NULL in it, and no rowids; so this package
// uses the hook itself. For each changed row the rowid and the columns before the transaction go
// into a small database in the token's folder of the journal, and, before the commit, those after
// it. Memory stays bounded however many rows there are.
//
// What the hook does not see is undone by a checkpoint of the whole file (backup API): changes of
// the schema, virtual tables, settings in the header (PRAGMA user_version), tables whose columns
// hide the rowid. The plan says so. A step finds out when it compiles its statements; it then
// starts its transaction again and copies the file while it holds the lock.
//
// # How it is known whether a step has committed
//
// The transaction itself writes a row into the table _unwind_steps of the same database: the token,
// the attempt, and the digest of the undo data of this attempt, which is on the disk by then. The
// row exists if and only if the change does, whenever a crash happens and in any journal mode.
// Comparing rows could not recognise a step that changed nothing visible, or whose change somebody
// else has made as well. The undo deletes the row in its own transaction, or the release does; the
// table is dropped with its last row. An undo writes the document "acted" before it commits, so
// that a missing row is never taken for a step that never acted. Where the row is missing and the
// journal does not say that the step has acted, the database must not hold what an attempt was
// about to write: if it does, somebody has deleted the row, and the record is damaged.
//
// # Locks and processes
//
// A stopped process keeps its locks on a database for ever, and an undo could never write it. So
// each call runs in a process of its own, started from the worker's program ([Attend]); it holds
// the token's lock, and an undo kills those of forwards before it takes that lock. A later forward
// finds the token closed once it has the lock: that is the fence. The process also protects the
// locks of the database from the worker (within one process, closing a file drops all its locks),
// and the worker from a crash of the engine.
//
// # How it is undone
//
// The undo puts the rows back in one transaction, with triggers, foreign keys and checks switched
// off for this connection, so that nothing else follows. It first compares each row with what the
// step left. Any difference is drift: it is shown row by row, and nothing is changed. Drift is a
// row that somebody has changed or deleted; a row that blocks one to be put back, because it has
// the same unique value, or a key that is equal only by collation or type; rows that would refer to
// nothing afterwards, even if they did so before the step; a table that was altered; another file
// in place of the database (device and inode). A force overwrites exactly what was shown. Rows of
// the same tables that the step has not touched stay as they are. The counters of AUTOINCREMENT go
// back if nobody has used them since.
//
// A checkpoint is put back whole, so any change that somebody else has made in the database since
// is drift. A digest of each row that the step left in the tables that it changed is kept, so it is
// shown row by row, unless the schema has changed. The content is compared while nobody else can
// write: in WAL mode by a second connection, otherwise by one that keeps its exclusive lock.
//
// # Checkpoints of a database
//
// A checkpoint is a copy of the file (backup API) in the worker's state. It goes with the undo of its
// step, unless somebody else has come to keep it, and with the release.
//
// A restore is a change like that of statements which rows do not tell: it locks the database,
// copies what is there, and commits with a mark, by which its attempts and its undo know it. The
// mark comes with the content: it is written into a copy of the checkpoint, which then overwrites
// the database in one transaction. So the file stays, and whoever has it open sees the one content
// or the other. The marks of other steps are those of the checkpoint, like their changes, without
// those of steps that are over. The journal mode stays that of the database; a page size that is
// another one than that of the checkpoint cannot be changed in WAL mode.
//
// # What is refused
//
// ATTACH, VACUUM, BEGIN and COMMIT, load_extension, temporary tables, and every PRAGMA but those
// that read and two that are part of the database. An approval covers the statements and the rows
// that they change; where the program of a statement calls a function that has another value each
// time (the time, a random number), it covers which rows change and not their new values, and the
// plan says so.
//
// If a parameter holds a secret, the plans of other steps and drift show digests in place of
// values; the undo data holds the values, as the database does. VACUUM by somebody else can
// renumber the rows of tables without an INTEGER PRIMARY KEY: these are then drift.
package sqlite
