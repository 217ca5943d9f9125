// Package terraform is the world of Terraform configurations: the action terraform.apply.
//
// # How a step runs
//
// Terraform runs on a copy of the folder's configuration, in the worker's own state folder (mode 0700). With a local
// backend (or none) the state stays where the folder keeps it, so other people's terraform sees it and is locked out by
// it; any other backend is used as it is configured. What a configuration writes by a path relative to itself
// (path.module, path.cwd) lands in the copy: give such resources absolute paths. Modules and files are read from below
// the folder only. The default workspace alone is supported.
//
// Every terraform that can change something runs under a supervisor (see [Supervise]) in a session of its own. A worker
// that dies does not kill it: it is interrupted once, finishes what is in flight, saves its state and ends. The next
// attempt, or the undo, waits for it and reads from its files what it did.
//
// # How it is undone
//
// The old state file is never put back: that would orphan whatever the step has made. Instead, under the configuration
// that the step applied, everything that the step added is destroyed; then the configuration from before is applied on
// the state as it is now. A folder whose state was empty is destroyed whole, and a state file that was not there before
// is removed. Afterwards a plan must show no change, and resources, attributes and outputs are compared with those from
// before. What was replaced or destroyed comes back with another identity and without its data: the plan says so before.
//
// Going back needs the configuration from before. It is known where this worker has applied it (for exactly this lineage
// and serial of the state); else the parameter previous names a folder that holds it, and a plan must prove that it makes
// exactly the present state; a step that only adds needs none. A step whose undo cannot be prepared is refused before
// anything is touched. Applying an unchanged configuration once makes it known.
//
// A step that was rolled back is done again from its own record: the configuration that it had applied then, with its
// variables and provider versions, is planned and applied to the present state. Once that record is released, the folder's
// configuration is taken instead, and the result says so. Objects are new ones either way.
//
// # How a lost forward is probed
//
// Observe waits for the terraform of the forward, which a dead worker has not killed, and reads what it has said and how it
// has ended: it happened, it did not, or, where terraform itself was killed while it made something, nobody can know.
//
// # What is kept, and how
//
// The configuration, its variables and lock file, the state before and after: all of it can hold secrets. In the journal
// it is encrypted (AES-256-GCM) with a key that is made once, in the file "key" (mode 0600) of the worker's Terraform
// state folder. Who can read that folder as the worker can read the key: it guards backups and copies of the journal,
// not the running host. Working copies stand in plain text in folders of mode 0700 while terraform works and, for a plan
// that waits at a gate, until that is decided. Without the key no record opens: undos say so and touch nothing until it is
// put back. A new key is made only beside an empty journal.
package terraform
