package stack

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lingering are former tops that nobody needs. Whoever lets go of an overlay last has a kernel write all that the disk of its
// upper layer has still to write, whosesoever it is: a change of tops just after would wait for that. So many go together, and
// later, when most of it has been written anyway; at the latest where layers are removed, whose room they hold: see [LetGo].
type lingering struct {
	mu  sync.Mutex
	fds []int
}

var departed lingering

const (
	// linger is how long a kernel lets written data lie; then it goes to the disk by itself.
	linger = 30 * time.Second
	// leastRoom and leastInodes are what a disk has left that can do without theirs.
	leastRoom, leastInodes = 1 << 30, 10_000
	// mostLingering bounds what they take of a kernel's memory: each holds on to its layers.
	mostLingering = 100
)

// add takes a former top that is open as fd, with layers below the folder that is open as layers: by its path whoever has
// entered the container finds another folder, or none.
func (l *lingering) add(fd, layers int) {
	if tight(layers) {
		go unix.Close(fd)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fds = append(l.fds, fd)
	switch len(l.fds) {
	case 1:
		time.AfterFunc(linger, l.letGo)
	case mostLingering:
		go l.letGo()
	}
}

// tight says that a disk needs the little that a former top holds of it: inodes, and what has been removed in it.
func tight(folder int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(folder, &fs); err != nil {
		return true
	}
	return fs.Bavail*uint64(fs.Bsize) < leastRoom || fs.Files > 0 && fs.Ffree < leastInodes //nolint:gosec // a block's size
}

// LetGo lets go of all former tops at once: so the disk gets the room of what has been removed of their layers.
func LetGo() { departed.letGo() }

func (l *lingering) letGo() {
	l.mu.Lock()
	all := l.fds
	l.fds = nil
	l.mu.Unlock()
	for _, fd := range all {
		unix.Close(fd)
	}
}
