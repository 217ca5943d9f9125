package stack

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// formerTops are unused former tops, kept open for a while. Closing the last reference to an
// overlay syncs the whole filesystem of its upper layer, and would hold up the next replacement of
// a top. So they are closed together and later, when most of it has been written anyway, and soon
// after layers have been removed, whose space they pin: see [CloseFormerTopsSoon].
type formerTops struct {
	mu  sync.Mutex
	fds []int
	// soon: they are about to be closed.
	soon bool
}

var openFormerTops formerTops

const (
	// lingerTime is longer than the kernel keeps dirty pages before it writes them back.
	lingerTime = 30 * time.Second
	// soonTime is how long the space of removed layers may stay pinned: the undos of a task then wait
	// for few syncs, not each for one.
	soonTime = time.Second
	// leastRoom and leastInodes are the free space that makes pinning some harmless.
	leastRoom, leastInodes = 1 << 30, 10_000
	// mostLingering bounds the kernel memory that they take: each pins its layers.
	mostLingering = 100
)

// add takes over fd, a former top, and layers, the folder of its layers: a path would lead
// elsewhere for a thread that has entered the container.
func (l *formerTops) add(fd, layers int) {
	if isShortOfSpace(layers) {
		go unix.Close(fd)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fds = append(l.fds, fd)
	switch len(l.fds) {
	case 1:
		time.AfterFunc(lingerTime, l.closeAll)
	case mostLingering:
		go l.closeAll()
	}
}

// isShortOfSpace reports whether a disk needs the space that a former top pins: inodes, and what
// was deleted in it.
func isShortOfSpace(folder int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(folder, &fs); err != nil {
		return true
	}
	return fs.Bavail*uint64(fs.Bsize) < leastRoom || fs.Files > 0 && fs.Ffree < leastInodes //nolint:gosec // a block's size
}

// CloseFormerTops closes all former tops now, so that the space of removed layers becomes free.
func CloseFormerTops() { openFormerTops.closeAll() }

// CloseFormerTopsSoon closes all former tops after a moment, those too that are added until then;
// or now, if the disk that folder is on needs the space.
func CloseFormerTopsSoon(folder string) {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	short := err != nil || isShortOfSpace(fd)
	if err == nil {
		unix.Close(fd)
	}
	if short {
		openFormerTops.closeAll()
		return
	}
	openFormerTops.mu.Lock()
	defer openFormerTops.mu.Unlock()
	if !openFormerTops.soon {
		openFormerTops.soon = true
		time.AfterFunc(soonTime, openFormerTops.closeAll)
	}
}

func (l *formerTops) closeAll() {
	l.mu.Lock()
	all := l.fds
	l.fds, l.soon = nil, false
	l.mu.Unlock()
	for _, fd := range all {
		unix.Close(fd)
	}
}
