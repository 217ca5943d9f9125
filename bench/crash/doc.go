// Package crash is the crash matrix: random tasks over all worlds, several side by side on several
// workers, while workers are killed at random moments and at every labelled point, frozen and
// thawed when all is over, the Temporal server is killed and started again, tasks are ended with
// nothing undone and recovered by another workflow, or rolled back when they have committed, and
// redone, the ways to the container engine and to the servers of databases stall or break off,
// these servers are killed and started again, and Stripe drops connections before or after it has
// acted. After each task its world is looked at by code that shares nothing with the worlds' own
// Observe (package found, and the looks in this package): either everything was applied exactly
// once, or all is as before, or the report names exactly what is not.
//
//	lost      a change that should be undone and is there, or a committed one that is not, and no report names it
//	doubled   what was done twice
//	orphaned  what is left over: containers, images, staged files, working copies, objects in no state,
//	          processes, connections
//	blocked   a task that did not close in time, not even with nothing more going wrong, or waits for a person
//	          without a cause
//
// What is random is drawn from the seed, in a fixed order for each task: its steps, its ending, its
// faults. When they meet it is a matter of timing, and no seed can fix that.
//
// Where the machine lets them, every other worker takes checkpoints of containers as layers; of
// those the engine sees nothing, so these containers are looked at from within. Some containers
// have a volume, of which each command keeps a copy.
//
// Databases are compared as their own programs dump them: with the dump from before, or with that
// of a twin on which the same statements ran once without us.
//
// With Options.Environments, environments are played in the place of tasks: checkpoints, rollbacks
// both ways, and some that are found not to work, with changes between them. After each answer all
// parts must be as it says: as the checkpoint has them, or as they were. Some have a machine in the
// place of containers: a QEMU without a guest, which has their disk open and is killed as well.
//
// The engine itself is not ours to pause: a proxy between the workers and it stalls and drops
// connections instead.
package crash
