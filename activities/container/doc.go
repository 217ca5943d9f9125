// Package container is the world of containers on a Docker engine. Its action container.exec runs a command in a
// container and can take back what the command did to the container's filesystem; container.replace puts a new container
// in the place of another (see below).
//
// # How a step runs
//
// A command whose checkpoint would be taken by docker commit, and that is proven to be read-only, just runs. Every other one
// runs in this order, each line durable before the next begins:
//
//	record       the container's whole inspection, and a manifest of its filesystem
//	checkpoint   of the container's filesystem, by a backend (see checkpoints): docker commit, or a layer
//	ticket       a document that forward and undo both write and only one can: whoever is first
//	exec         under a supervisor, a process of its own that outlives the worker (see Attend)
//	result       exit status and output, written by the supervisor into the journal
//	applied      the manifest afterwards, and what Apply returns
//
// A retry finds the supervisor by the lock that it holds for as long as it lives, waits for it and returns its result.
// A supervisor that is gone without a result leaves an outcome that nobody knows: the step rolls back to its checkpoint
// and runs again, and says so (rerun: false makes it UnknownOutcome instead).
//
// # What only reads
//
// Two proofs make a command read-only. Its text: a parser knows every construct in it, and a table every program with its
// arguments (see package readonly). And the container: the shell, the programs, the libraries that they load and what
// tells the loader which are compared byte by byte with the image's, in a container of it that is never started (see the same package).
// A container that has mounted a tmpfs over them, or may mount by itself, a relative PATH, and variables that make programs
// load others prove nothing. What is read out of a pipe of another process is no part of either proof, and neither is a
// process in the container that replaces a program between the proof and the command. readonly/testdata holds the corpus
// that both are judged by.
//
// # How it is undone
//
// An undo that writes the ticket first knows that the command has not run and never will. Otherwise the container is
// made anew from the checkpoint, beside the old one, compared with the manifest, and then takes the old one's place and
// name. Everything that a late forward knows, the container's id and the exec's, is dead from then on: the engine itself
// refuses it. So the fence needs nothing in the engine that a stopped process could hold, and leaves no tombstone there;
// the tombstone is the token's fate in the journal, which outlives all else.
//
// The ticket is a document, not a container of that name in the engine, for three reasons: link(2) takes a name as
// atomically as the engine does; forward and undo share this journal, or are refused (WrongPlace); and what is not made
// in the engine need never be cleared away there, when nobody can tell whether some process still means to look at it.
//
// Two undos at once build a container each; the document that names the old container's successor is written once, so
// that only one of the two can win, and the loser removes its own (see lineage).
//
// # Layers
//
// Wherever that works, and the container's own processes do not use its files, a checkpoint is a list of layers over the
// container's root (see layers, and package overlay/helper). A sidecar on the engine makes them (package overlay/sidecar), where
// the worker cannot look, and the worker notes which containers have some (see home). A rollback takes the later ones off and the
// container stays, with its id: so what is late is kept out in another way. Every command of a step, its checks too, starts
// in a door: a folder that a helper shows in the container for this step alone. An engine starts nothing in a folder that is
// not there. A rollback shows other layers, with another door or none, and ends every process that stands in the old ones.
//
// A manifest in layers says how the container differs from the step's checkpoint; the one from before the step is empty.
//
// # How a rollback is undone
//
// A rollback after the end commits the container to an image before it replaces it; the document that names the successor
// names that image too, so that it is what the rollback which won has taken away. A redo is a forward of its own token, with
// its own record, checkpoint and ticket; in place of a command it rolls the container over to that image, under the same
// fences. It refuses a container that is not as the rollback left it, and an image that is not as the rollback saw it.
//
// # Reset
//
// Where the record or the checkpoint is lost, a reset makes the container anew from the image that it was made from in the
// first place. It needs only a container to copy the settings of: the one in the record, or the one that the entry names.
// A document says whether an undo or a reset ends the token. An undo writes it when it has succeeded and a reset before it
// touches anything; so an undo that wakes up beside a reset finishes the reset, or has been quicker.
//
// # container.replace
//
// A forward makes the new container, tries the image beside the old one where there are checks for that, then renames the
// old one, stops it, and gives its name to the new one. Each container is named in a document before it is started: an undo
// that writes the document first names none, so that none is started. So is the old one before it is renamed: where an undo
// writes that first, the old one is not touched, and there is nothing to take back. A trial only reads what the old one has
// mounted.
//
// The old one keeps its id, and no late call may reach it: it is only ever renamed by that, to a name of the token; stopped,
// started and renamed on by that name. An undo takes it to a second name, and gives the first to a container that was never
// started and cannot be, then the second one as well. They stay until the record is released. An undo finds the new one under
// whatever id later rollbacks have given it, and the old one too.
//
// # Several tasks
//
// Steps that change something in one container are at work there one after the other, whichever tasks they belong to: see
// package lease. One that is proven to only read waits for nobody; on layers nothing is proven, for every command has a checkpoint.
//
// # What does not come back
//
// Volumes, binds and tmpfs are not part of a container's filesystem: no backend rolls them back, and Plan names them. Of volumes
// a step may ask for copies (volumes: snapshot): they are made before its record, and their undo puts back what differs, when
// the container is rolled back and does not run yet (see package volumes).
// What an engine mounts into each container itself (/etc/hosts, /etc/hostname, /etc/resolv.conf, /dev) is on no layer: what a step
// does there is told by its result, and an undo of it leaves a residue.
// LossTable says what each backend cannot keep.
package container
