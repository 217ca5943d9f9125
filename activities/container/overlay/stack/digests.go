package stack

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Digests remembers what files held: one is not read again while the kernel says that its inode has not changed since. No
// process can set the time of that back, unlike the time of the last write.
type Digests struct {
	mu    sync.Mutex
	known map[inode]string
}

// inode is a file in one state.
type inode struct {
	dev, ino         uint64
	size             int64
	changed, written unix.Timespec
}

func inodeOf(st unix.Stat_t) inode { return inode{st.Dev, st.Ino, st.Size, st.Ctim, st.Mtim} }

// maxDigests bounds what is remembered, at about 200 bytes a file.
const maxDigests = 200_000

// tick is more than a kernel's clock for files may be late: one that was changed so shortly before it was read may be changed
// again at what is the same time to the kernel.
const tick = 100 * time.Millisecond

// reading is one look at a container's files.
type reading struct {
	known *Digests
	read  map[inode]string // what it has read itself
}

// digest is that of a file's content.
func (r *reading) digest(it filetree.Node) (string, error) {
	at := inodeOf(it.Stat)
	if sum, ok := r.known.get(at); ok {
		return sum, nil
	}
	began := time.Now()
	sum, err := it.Digest()
	if err != nil {
		return "", err
	}
	var after unix.Stat_t
	if unix.Fstat(it.FD, &after) == nil && inodeOf(after) == at && began.Sub(time.Unix(at.changed.Unix())) > tick {
		r.read[at] = sum
	}
	return sum, nil
}

func (d *Digests) get(at inode) (sum string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, ok = d.known[at]
	return sum, ok
}

// add remembers what a reading has read.
func (d *Digests) add(read map[inode]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known)+len(read) > maxDigests {
		d.known = map[inode]string{}
	}
	for at, sum := range read {
		if len(d.known) < maxDigests {
			d.known[at] = sum
		}
	}
}

// writesUnseen says that a process of the container may write to files without the kernel's noting when: through a shared
// mapping, whose pages are noted only when they are written to for the first time.
func (t *Target) writesUnseen() bool {
	all, err := t.members()
	if err != nil {
		return true
	}
	for _, p := range all {
		maps, err := os.ReadFile(p.dir + "/maps")
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return true
		}
		for line := range strings.Lines(string(maps)) {
			if writesFile(line) {
				return true
			}
		}
	}
	return false
}

// writesFile says whether a line of /proc/PID/maps is a shared mapping of a file that may be written to. Device 0:1 is the
// kernel's own, of memory that processes share.
func writesFile(line string) bool {
	f := strings.Fields(line)
	const rights, device, number = 1, 3, 4
	return len(f) > number && strings.HasPrefix(f[rights][1:], "w") && strings.HasSuffix(f[rights], "s") && f[device] != "00:01" && f[number] != "0"
}
