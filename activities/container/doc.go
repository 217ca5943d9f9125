// Package container is the world of containers on a Docker engine. Its action container.exec runs a
// command in a container and can take back what the command did to the container's filesystem;
// container.replace puts a new container in the place of another (package replace).
//
// # Packages
//
//	command                  runs a command, under a supervisor that outlives the worker
//	checkpoint               the seam between the actions and the two ways to keep a filesystem
//	checkpoint/dockercommit  keeps it as an image, rolls back by making the container anew
//	checkpoint/layers        keeps it as layers over the root of the container, which stays
//	lineage                  which container took the place of which, and what steps leave in an engine
//	manifest                 what a container's filesystem holds
//	readonly                 the proof that a command only reads
//	volumes                  copies of volumes
//	lease                    one step at a time in a container
//	target                   what both actions need: their journal, their container, a look into it for checks
//	blueprint                containers like others
//
// What is not of this world alone is in activities/docker: the client of an engine, and what makes
// layers.
//
// # How a step runs
//
// A command whose checkpoint would be taken by docker commit, and that is proven to be read-only,
// just runs. Every other one runs in this order, each line durable before the next begins:
//
//	record       the container's whole inspection, and a manifest of its filesystem
//	checkpoint   of the container's filesystem, by a backend (package checkpoint): docker commit, or a layer
//	ticket       a document that forward and undo both write and only one can: whoever is first
//	exec         under a supervisor, a process of its own that outlives the worker (package command)
//	result       exit status and output, written by the supervisor into the journal
//	applied      the manifest afterwards, and what Apply returns
//
// A retry finds the supervisor by the lock that it holds for as long as it lives, waits for it and
// returns its result. A supervisor that is gone without a result leaves an outcome that nobody
// knows: the step rolls back to its checkpoint and runs again, and says so (rerun: false makes it
// UnknownOutcome instead).
//
// # What only reads
//
// Two proofs make a command read-only. Its text: a parser knows every construct in it, and a table
// every program with its arguments (see package readonly). And the container: the shell, the
// programs, the libraries that they load and what tells the loader which are compared byte by byte
// with the image's, in a container of it that is never started (see the same package). A container
// that has mounted a tmpfs over them, or may mount by itself, a relative PATH, and variables that
// make programs load others prove nothing. What is read out of a pipe of another process is no part
// of either proof, and neither is a process in the container that replaces a program between the
// proof and the command. readonly/testdata holds the corpus that both are judged by.
//
// # How it is undone
//
// An undo that writes the ticket first knows that the command has not run and never will. Otherwise
// the backend brings the checkpoint back, so that what a late forward knows is of no use any more:
// see the packages of both. The tombstone is the token's fate in the journal, which outlives all
// else.
//
// The ticket is a document, not a container of that name in the engine, for three reasons: link(2)
// takes a name as atomically as the engine does; forward and undo share this journal, or are
// refused (WrongPlace); and what is not made in the engine need never be cleared away there, when
// nobody can tell whether some process still means to look at it.
//
// # How a rollback is undone
//
// A rollback after the end keeps what it takes away; with docker commit the document that names the
// successor names its image too, so that it is what the rollback which won has taken away. A redo
// is a forward of its own token, with its own record, checkpoint and ticket; in place of a command
// it rolls the container over to what was kept, under the same fences. It refuses a container that
// is not as the rollback left it, and what is not as the rollback saw it.
//
// # Reset
//
// Where the record or the checkpoint is lost, a reset makes the container anew from the image that
// it was made from in the first place. It needs only a container to copy the settings of: the one
// in the record, or the one that the entry names. A document says whether an undo or a reset ends
// the token. An undo writes it when it has succeeded and a reset before it touches anything; so an
// undo that wakes up beside a reset finishes the reset, or has been quicker.
//
// # Several tasks
//
// Steps that change something in one container are at work there one after the other, whichever
// tasks they belong to: see package lease. One that is proven to only read waits for nobody; on
// layers nothing is proven, for every command has a checkpoint.
//
// # What does not come back
//
// Volumes, binds and tmpfs are not part of a container's filesystem: no backend rolls them back,
// and Plan names them. Of volumes a step may ask for copies (volumes: snapshot): they are made
// before its record, and their undo puts back what differs, when the container is rolled back and
// does not run yet (see package volumes). What an engine mounts into each container itself
// (/etc/hosts, /etc/hostname, /etc/resolv.conf, /dev) is on no layer: what a step does there is in
// its result, and an undo of it leaves a residue. [checkpoint.LossTable] says what each backend
// cannot keep.
package container
