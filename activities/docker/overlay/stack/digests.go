package stack

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Digests caches digests of content by inode. A file is read again if its ctime has changed, which,
// unlike its mtime, no process can set back.
type Digests struct {
	mu    sync.Mutex
	known map[fileState]string
}

// fileState identifies a file in one state.
type fileState struct {
	dev, ino         uint64
	size             int64
	changed, written unix.Timespec
}

func stateOf(st unix.Stat_t) fileState { return fileState{st.Dev, st.Ino, st.Size, st.Ctim, st.Mtim} }

// maxDigests bounds the cache; an entry takes about 200 bytes.
const maxDigests = 200_000

// clockSlack is more than the granularity of the kernel's file clock: a file changed this shortly
// before it was read may change again within the same timestamp.
const clockSlack = 100 * time.Millisecond

// digestReader is one pass over a container's files. It walks folders, and hashes files, on all
// processors.
type digestReader struct {
	known *Digests
	skip  func(path string) bool
	// walkers walk folders besides the goroutine that lists; they wait for hashers.
	walkers, hashers errgroup.Group

	mu    sync.Mutex
	found []*RootEntry
	read  map[fileState]string // what it has read itself
}

func newDigestReader(known *Digests, skip func(path string) bool) *digestReader {
	r := &digestReader{known: known, skip: skip, read: map[fileState]string{}}
	r.walkers.SetLimit(runtime.GOMAXPROCS(0) - 1)
	r.hashers.SetLimit(runtime.GOMAXPROCS(0))
	return r
}

// digest finds the digest of the content of the file at a path: now if it is cached, otherwise
// before wait returns.
func (r *digestReader) digest(it filetree.Node, path string, found *string) error {
	state := stateOf(it.Stat)
	if known, ok := r.known.get(state); ok {
		*found = known
		return nil
	}
	f, err := it.OpenContent()
	if err != nil {
		return err
	}
	r.hashers.Go(func() (err error) {
		defer f.Close()
		*found, err = r.hash(f, state)
		return wrap(path, err)
	})
	return nil
}

// hash hashes a file that was in a state when it was opened.
func (r *digestReader) hash(f *os.File, state fileState) (string, error) {
	began := time.Now()
	sum, err := filetree.DigestOf(f)
	if err != nil {
		return "", err
	}
	var after unix.Stat_t
	if unix.Fstat(int(f.Fd()), &after) == nil && stateOf(after) == state &&
		began.Sub(time.Unix(state.changed.Unix())) > clockSlack {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.read[state] = sum
	}
	return sum, nil
}

func (d *Digests) get(at fileState) (sum string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, ok = d.known[at]
	return sum, ok
}

// add caches what a digestReader has read.
func (d *Digests) add(read map[fileState]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known)+len(read) > maxDigests {
		d.known = map[fileState]string{}
	}
	for at, sum := range read {
		if len(d.known) < maxDigests {
			d.known[at] = sum
		}
	}
}

// hasSharedMappings reports whether a process of the container maps a file shared and writable: the
// kernel updates ctime only on the first write to a page of such a mapping.
func (t *Target) hasSharedMappings() bool {
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
			if isSharedMapping(line) {
				return true
			}
		}
	}
	return false
}

// isSharedMapping reports whether a line of /proc/PID/maps is a writable shared mapping of a file.
// Device 0:1 is shared memory of the kernel's own.
func isSharedMapping(line string) bool {
	f := strings.Fields(line)
	const rights, device, number = 1, 3, 4
	return len(f) > number && strings.HasPrefix(f[rights][1:], "w") && strings.HasSuffix(f[rights], "s") &&
		f[device] != "00:01" && f[number] != "0"
}
