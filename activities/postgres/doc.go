// Package postgres is the world of PostgreSQL databases: postgres.exec changes rows, postgres.query
// reads them, postgres.checkpoint keeps a whole database, postgres.restore puts it back.
//
// # Packages
//
//	server      connections to the servers of a worker's databases, within what the config allows
//	statement   which statements may run, how they run, what the server says of them before
//	schema      what the catalogs say: a description, objects, traits, what a transaction has touched
//	capture     the tables whose rows a step changes, and the triggers on them
//	alteration  what a step does to the schema, and how that is taken back; the undo that a step declares
//	checkpoint  postgres.checkpoint and postgres.restore
//	drift       the error of an undo that finds the work of others
//
// This package has postgres.exec and postgres.query, the journal in the databases, and the undo of
// rows.
//
// # How a change is undone
//
// A step is one transaction. Triggers on each table that it changes write the rows before and after
// to a journal table of the same database (see [Schema]), in the same transaction: an attempt that
// never received the answer to its COMMIT finds its own result, and a step that did not commit has
// left nothing. The condition of the triggers holds only in a step: others pay for the evaluation
// of one setting, and for the server's own note of the rows that they change.
//
// They see every row that changes, whatever changes it: triggers, cascades, rules, MERGE, a row
// that moves to another partition. Whether all were seen is not assumed: the server counts the rows
// that a transaction changes in each table, catalogs included, and what does not match the captured
// rows is refused before the commit. So no SQL is parsed: a function that changes the schema shows
// as a change of pg_class.
//
// # Changes of the schema
//
// A DROP TABLE becomes a move into a schema of ours, a TRUNCATE is preceded by a copy, and what
// other statements made or changed is found by comparing the catalogs: each thing that a statement
// of ours can set again is listed before and after, with that statement. The inverse is tried
// before the commit: the description of the schema must be the one from before, or the statement is
// refused.
//
// # Declared undo
//
// A step with undo statements of its author is not captured. They are tried before the commit, with
// the schema and the contents of all that they touch compared, and again when they run.
//
// # Checkpoints of a whole database
//
// postgres.checkpoint changes nothing. It dumps or copies the database, and its undo exchanges the
// database for what it has kept, if it has changed; postgres.restore does so at any time, and its
// undo exchanges them back (package checkpoint). The journal of the database goes on in the restored
// one (former.go).
//
// # Drift
//
// A row that the step left has the version (xmin) that the step gave it until somebody changes it;
// so drift is found row by row without comparing copies of rows. The undo is one transaction: it
// looks for drift, deletes the rows that the step left in exactly that version, inserts those that
// were there before, checks the foreign keys, and compares. It runs with session_replication_role =
// replica: triggers do not run again, since what they did was captured.
//
// # Fence
//
// The row of a token in unwind.record is inserted by the first of forward and undo, and never
// deleted. A forward inserts it in its own transaction; the undo ends that transaction by the name
// of its connection, and then inserts the row itself.
//
// # What is refused
//
// Changes of the schema without an exact inverse or a declared undo, changes of rows of tables
// without a key, foreign tables, tables with row security for the worker's role, large objects, and
// what escapes from a transaction.
package postgres
