package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// QEMU keeps others out of an image by locks on single bytes of the file: one for each thing that it
// does with the image, from permitted on, and one for each that nobody else may do, from unshared
// on. It takes its own, and then looks for those of others that contradict them. See QEMU's
// block/file-posix.c.
const (
	permitted = 100
	unshared  = 200
)

// What can be done with an image.
const (
	reading   = 0
	writing   = 1
	rewriting = 2 // with the same content
	resizing  = 3
)

// lockImage takes the locks of one that writes an image, as which nobody else can open it, until the
// file is closed, also by the programs that have inherited it. It is false where somebody has the image
// open.
func lockImage(file *os.File) (locked bool, err error) {
	for _, b := range []int64{permitted + reading, permitted + writing, permitted + resizing, unshared + writing,
		unshared + rewriting, unshared + resizing} {
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, byteLock(unix.F_RDLCK, b)); err != nil {
			return false, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
	}
	for _, b := range []int64{permitted + writing, permitted + rewriting, permitted + resizing, unshared + reading,
		unshared + writing, unshared + resizing} {
		other := byteLock(unix.F_WRLCK, b)
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, other); err != nil {
			return false, fmt.Errorf("looking for locks on %s: %w", file.Name(), err)
		}
		if other.Type != unix.F_UNLCK {
			return false, nil
		}
	}
	return true, nil
}

func byteLock(kind int16, at int64) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
}

// errInUse says that somebody has an image open.
var errInUse = errors.New("a machine or another program has it open")
