package helper

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Room is what root has left on a filesystem, or needs.
type Room struct{ Bytes, Inodes int64 }

// Least is the free space without which no checkpoint is taken. The step's own writes use it too;
// recording its end and undoing it take a hundredth of this. An ext4 reports up to 16 MiB that
// nobody can use.
var Least = Room{Bytes: 64 << 20, Inodes: 1000}

// RoomAt is what is left where a folder is. What a filesystem does not count is unlimited.
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

// Holds reports whether there is as much as is needed.
func (r Room) Holds(need Room) bool { return r.Bytes >= need.Bytes && r.Inodes >= need.Inodes }

// wayOut says how to free space for layers.
const wayOut = "layers go when the records of their steps are released (keep: in the task file, retention: in the " +
	"worker's config); " +
	"or enlarge the filesystem: what waits for it then continues"

// checkRoom returns a Full failure if there is too little space for a checkpoint, which itself
// takes some bytes.
func (o *lockedBook) checkRoom(takes int64) error {
	need := Room{o.least.Bytes + takes, o.least.Inodes}
	left, err := RoomAt(o.dir)
	if err != nil || left.Holds(need) {
		return err
	}
	return newFailure(Full, "the filesystem of %s, where the layers are, has %s left, and a checkpoint needs %s; %s",
		o.dir, left, need, wayOut)
}

func (r Room) String() string {
	return fmt.Sprintf("%d MiB and %d inodes", r.Bytes>>20, r.Inodes)
}
