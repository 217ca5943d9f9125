// Package redis is the world of Redis databases: redis.exec runs commands that change keys;
// redis.checkpoint and redis.restore keep a whole database and put it back.
//
// # How a change is undone
//
// A step is one Lua script, which the server runs as a whole or not at all: it keeps what the keys
// of the commands hold, as DUMP has it, with the times at which they expire; runs the commands; and
// writes the record of the step's token. If a command fails, the script puts the keys back. A step
// whose answer was lost has its record, or has done nothing. The keys are those that the server
// itself finds in a command (COMMAND GETKEYSANDFLAGS); a command whose keys it cannot name is
// refused.
//
// # Whole databases
//
// redis.checkpoint has one script read all keys, and keeps them in a file of the worker: a database
// that is flushed takes neither the checkpoint nor its record along. redis.restore writes what the
// database holds to another file, and then has one script replace the keys that differ, if every key
// is still as it was read; in the same atomic unit, the journal in the database gets one field, which
// names the attempt. Forwards need it to be absent, the undo to name theirs, and each changes it. The
// undo replaces the keys in the same way. Two dumps that differ may hold the same: the server says so
// (sums.lua).
//
// # Drift
//
// The record has a digest of what each key held when the step was done. It covers the content, and
// not how the server stores it: the bytes of DUMP differ between two sets with the same members.
// The undo compares, and then puts the keys back in a script that first makes sure that each is
// still as it was seen.
//
// # Fence
//
// The record is the fence: a script that finds its token undone does nothing.
//
// # Journal
//
// All records of a database are in one hash, unwind:journal, together with a random id, which is
// part of the place of each step. A server that loses its memory, or evicts the hash, loses the id
// as well: every later call then reports damage, and never that there is nothing to undo.
package redis
