package journal

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// forgotten are the tombstones that listings of this process have seen. Nearly all tokens of a
// long-lived journal are tombstones, and stay, as they are fences; so a listing opens the folder of
// each but once, and then only asks whether it has changed. The zero value knows none.
type forgotten struct {
	sync.Mutex

	since map[[tokenBytes]byte]int64 // when the folder of each last changed
}

// tokenBytes is how many bytes the digits of a token stand for.
const tokenBytes = 16

// settledAfter is how old a change of a folder is before another one is certain to have a later
// time.
const settledAfter = time.Minute

// includes reports whether a token has at most a fate.
func (f *forgotten) includes(t *Token) (bool, error) {
	info, err := os.Lstat(t.dir)
	if err != nil {
		return true, ignoreMissing(err)
	}
	key, changed := t.bytes(), info.ModTime()
	f.Lock()
	since, known := f.since[key]
	f.Unlock()
	if known && since == changed.UnixNano() {
		return true, nil
	}
	bare, err := t.isTombstone()
	f.Lock()
	defer f.Unlock()
	switch {
	case err == nil && bare && time.Since(changed) > settledAfter:
		if f.since == nil {
			f.since = map[[tokenBytes]byte]int64{}
		}
		f.since[key] = changed.UnixNano()
	case known:
		delete(f.since, key)
	}
	return bare, err
}

// bytes are those that the token's digits stand for.
func (t *Token) bytes() (b [tokenBytes]byte) {
	_, _ = hex.Decode(b[:], []byte(filepath.Base(t.dir))) // Token has checked the digits
	return b
}

// isTombstone reports whether a token has at most a fate. It costs one listing of its folder, and
// not a look for each document.
func (t *Token) isTombstone() (bool, error) {
	d, err := os.Open(t.dir)
	if err != nil {
		return true, ignoreMissing(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return !slices.ContainsFunc(names, func(name string) bool { return name != fateName && name != lockName }), err
}
