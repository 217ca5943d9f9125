// Package command runs commands in containers.
//
// An engine forgets the output of a command whose client has gone, and soon its exit status. So the
// client of a step's command is a process of its own, a supervisor, that survives the worker and
// writes what the command said and how it ended into the journal ([Attempt]). Commands whose result
// may be lost have the worker itself as their client ([Run]).
package command
