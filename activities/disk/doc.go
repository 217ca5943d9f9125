// Package disk is the world of disks of virtual machines, kept in qcow2 images: disk.checkpoint
// keeps what a disk holds, and disk.restore makes it hold that again, exactly.
//
//	w, err := disk.New(disk.Config{State: "/var/lib/unwind/disk", Roots: []string{"/srv/machines"}})
//
//	- id: before
//	  uses: disk.checkpoint
//	  with: { disk: /srv/machines/shop.qcow2 }
//	- id: back
//	  uses: disk.restore
//	  with: { disk: /srv/machines/shop.qcow2, checkpoint: "${{ steps.before.outputs.checkpoint }}" }
//
// # Where it is kept
//
// In the image itself, as an internal snapshot whose name has the step's token: see `qemu-img
// snapshot -l`. It takes a copy of the disk's map at first, and later what is overwritten. How many
// there are makes no difference to one of them: none depends on another.
//
// # Disks in use
//
// While a call works on an image, it holds the locks by which QEMU keeps others out of it. So no
// machine can be started with the disk meanwhile, and an image that a machine, or another program,
// has open is refused; qemu-img, which runs with these locks, takes none of its own.
//
// A checkpoint can be taken of a disk that a running machine has, if the worker's config says where
// the machine's QMP socket is. QEMU takes the snapshot then, between two writes of the guest. Where
// a guest agent answers, the guest's filesystems are frozen first. A process of its own freezes and
// thaws them, and thaws them whatever becomes of the call: see freezer.
//
// # Memory
//
// Where a step asks for it, QEMU writes the memory and the devices of a running machine into the
// snapshot, and takes one of the same name in every other image that the machine writes. A restore
// pauses the machine, keeps it so, and has QEMU load the checkpoint into it: no machine is stopped
// or booted. A job of QEMU that a killed call has begun is waited for by the next call; the machine
// stays paused until then, so that a later attempt can tell whether somebody else has continued it.
//
// # How a restore is undone
//
// It takes a snapshot of what the disk holds first. The undo puts that back. It looks at the maps
// first: clusters that snapshots have are never written in place, so the map of the disk is that of
// the checkpoint exactly as long as nobody has written anything. What somebody has written since is
// drift.
//
// QEMU raises the counts of references before it changes a map, and lowers them after. So an image
// in which qemu-img was killed holds what it held before or what it was to hold, and at worst counts
// references that nobody has. The next call of the token mends that (qemu-img check -r leaks) before
// it does anything else, and so should who starts the machine by hand before that.
package disk
