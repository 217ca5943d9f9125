// Package terraform is the world of Terraform configurations: terraform.apply changes what there is,
// terraform.checkpoint keeps it, terraform.restore goes back, and terraform.verify and
// terraform.compare look.
//
// # How a step runs
//
// Terraform runs on a copy of the folder's configuration, in the worker's own state folder (mode
// 0700). With a local backend (or none) the state stays where the folder keeps it, so that it is
// seen and locked by other people's terraform too; any other backend is used as configured. What a
// configuration writes to a path relative to itself (path.module, path.cwd) ends up in the copy:
// give such resources absolute paths. Modules and files are read only from inside the folder. Only
// the default workspace is supported.
//
// Every terraform that can change something runs under a supervisor (see package run) in a session
// of its own. The death of the worker does not kill it: it is interrupted once, finishes what is in
// flight, saves its state and ends. The next attempt, or the undo, waits for it and reads from its
// files what it did.
//
// # How it is undone
//
// The old state file is never put back: that would orphan whatever the step has made. Instead, the
// actions of the step's plan are reversed. What it imported is taken out of the state, what it made
// is destroyed under the configuration that the step applied, what it moved is moved back, what it
// made Terraform forget is imported by its id; then the previous configuration is applied to the
// present state. If the state was empty before, everything is destroyed, and a state file that did
// not exist is removed. Afterwards a plan must show no change, and resources, attributes and
// outputs are compared with those from before. Replaced or destroyed objects come back with another
// identity and without their data: the plan says so beforehand. Going back needs the previous
// configuration. It is known if this worker applied it (for exactly this lineage and serial of the
// state); otherwise the parameter previous names a folder that holds it, and a plan must prove that
// it makes exactly the present state. A step that only adds needs none. A step whose undo cannot be
// prepared is refused before anything is touched. Applying an unchanged configuration once makes it
// known.
//
// Which state each apply and each undo has left is kept in the journal, by the place of the state.
// One that is missing, of another lineage, or older is asked about before an apply and is drift
// before an undo: terraform would make again what is not in it, and an undo would leave it.
//
// A rolled back step is redone from its own record: the configuration that it applied then, with
// its variables and provider versions, is planned and applied to the present state. Once that
// record is released, the folder's configuration is used instead, and the result says so. Objects
// are new either way.
//
// # Checkpoints of a configuration
//
// terraform.checkpoint keeps the files of the folder, the state, and the configuration that made that
// state, which is the known one; if there is none, the one in the folder, of which a plan says whether
// it made the state. While it looks it holds the lock of the state.
//
// terraform.restore is terraform.apply with another configuration: that of the checkpoint, without the
// blocks that say how a state comes about. Everything is destroyed where there was nothing. Then the
// files of the folder are put back, all by renames from and to a stage in it, which an undo removes
// first: that is the fence. The record has the files before and after, and an undo compares them like
// the state.
//
// What a restore destroys or replaces has to be known before anything is stopped for it. So
// terraform.verify plans it and, at a gate of its own, has a person accept it: what it returns then is
// the plan, the state and the reasons, signed with the worker's key, and the restore lets pass exactly
// these. Nobody else can write that into a task.
//
// # How a lost forward is probed
//
// Observe waits for the terraform of the forward, which outlives a worker, and reads its output and
// exit: it happened, it did not, or, if terraform itself was killed while it made something, nobody
// can know.
//
// # What is kept, and how
//
// The configuration, its variables and lock file, and the states before and after can all hold
// secrets. In the journal they are encrypted (AES-256-GCM) with a key that is made once, in the
// file "key" (mode 0600) of the worker's Terraform state folder. Whoever can read that folder can
// read the key: it protects backups and copies of the journal, not the running host. Working copies
// are plain text in folders of mode 0700 while terraform works and, for a plan at a gate, until
// that is decided. Without the key no record can be read: undos say so and touch nothing until it
// is restored. A new key is made only for an empty journal.
//
// # The folders
//
// This package has the actions: plan, apply, observe and undo. Below it, package workspace is
// terraform in a working copy of a configuration, run starts terraform under its supervisor and
// waits for it, salvage puts right what a killed terraform has left, and record keeps what an undo
// needs, encrypted by seal. Packages state, plan, stream and configuration read what terraform
// reads and writes.
package terraform
