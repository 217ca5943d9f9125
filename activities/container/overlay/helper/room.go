package helper

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Room is what is left on a filesystem for root, or has to be.
type Room struct{ Bytes, Inodes int64 }

// Least is the room without which no checkpoint is taken. All that the step writes goes there too, and it is to come to its
// end: what it takes to note that, and to take the step back, is a hundredth of this. An ext4 tells of up to 16 MiB that it
// gives nobody.
var Least = Room{Bytes: 64 << 20, Inodes: 1000}

// RoomAt is what is left where a folder is. What a filesystem does not count is without end.
func RoomAt(dir string) (Room, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Room{}, fmt.Errorf("the room in %s: %w", dir, err)
	}
	left := Room{math.MaxInt64, math.MaxInt64}
	if fs.Blocks > 0 {
		left.Bytes = int64(fs.Bfree) * fs.Frsize //nolint:gosec // a disk's size
	}
	if fs.Files > 0 {
		left.Inodes = int64(fs.Ffree) //nolint:gosec // a count
	}
	return left, nil
}

// Holds says that there is as much as is needed.
func (r Room) Holds(need Room) bool { return r.Bytes >= need.Bytes && r.Inodes >= need.Inodes }

// wayOut says how there is more room for layers.
const wayOut = "layers go when the records of their steps are released (keep: in the task file, retention: in the worker's config); " +
	"or give the filesystem more room: what waits for it then goes on"

// enough says as a Full that there is too little room for a checkpoint, which itself takes some bytes.
func (o *open) enough(takes int64) error {
	need := Room{o.least.Bytes + takes, o.least.Inodes}
	left, err := RoomAt(o.dir)
	if err != nil || left.Holds(need) {
		return err
	}
	return failure(Full, "the filesystem of %s, where the layers are, has %s left, and a checkpoint needs %s; %s", o.dir, left, need, wayOut)
}

func (r Room) String() string {
	return fmt.Sprintf("%d MiB and %d inodes", r.Bytes>>20, r.Inodes)
}
